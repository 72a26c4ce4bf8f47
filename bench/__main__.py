"""`python -m bench [NAME ...]`: all measurements, or those named; bench/RESULTS.md is updated.

A measurement is a module whose `main()` gives its figures as a dict, with `passed` among them if it
knows its bar. One that does not write a section of the results page gets a plain table here.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from bench import results
from bench.zoo import __main__ as zoo

PLAIN = {
    "overhead": "Cost of the hooks",
    "observer_cost": "Cost of the observer",
    "watch_cost": "Cost of watching, 8 ranks x 8 workers",
    "collective_overhead": "Cost of the hooks per collective",
    "device_overhead": "Cost of the device hooks, on stand-ins for events and copies",
    "gpu_sampling": "Cost of sampling 8 GPUs, on a stub of the driver's library",
}
BARS = {
    "overhead": {
        f"{way}.{figure}": bar
        for way in ("workers", "inline")
        for figure, bar in (("hooks_us_per_step", 25.0), ("hooks_frac_of_step", 25 / 2600))
    },
    "observer_cost": {"together_core_share": 0.01, "peak_rss_bytes": 80e6},
    "watch_cost": {"core_share": 0.05},
    "collective_overhead": {
        f"{name}.hooks_us": 10.0
        for name in ("all_reduce", "all_reduce_and_wait", "all_gather", "barrier")
    },
    "device_overhead": {"step_us": 25.0, "microbatch_us": 8.0},
    "gpu_sampling": {"core_share": 0.01, "interval_ms": 110.0},
}
"""At most this much, by figure."""
OWN_SECTION = (
    "fixed_cost",
    "hour",
    "alpha_beta",
    "jitter_forecast",
    "day",
    "long_spool",
    "many_ranks",
    "page_size",
    "fleet_size",
    "host_budget",
    "trace_import",
    "import_ray",
    "predict_gain",
    "elastic_equal",
    "fix_gain",
    "elastic_cost",
    "tune_gain",
    "one_answer",
    "loaders_peers",
    "fuzz_importers",
    "hostile",
    "plan_accuracy",
    "plan_counts",
    "plan_speed",
    "device_time",
    "replayed",
    "roofline_cpu",
    "feed_accuracy",
    "pack_speed",
    "cache_epoch",
    "cache_torture",
    "torture",
    "secrets_kept",
    "two_users",
    "foreign_files",
    "oom_group",
    "compare_power",
)
NAMES = (*PLAIN, *OWN_SECTION, "zoo")


def main(names: list[str]) -> bool:
    """Run them; True if none missed its bar."""
    passed = [run(name) for name in NAMES if not names or name in names]
    return all(passed)


def run(name: str) -> bool:
    """Run one and keep what it measured."""
    print(f"== {name}", flush=True)
    if name == "zoo":
        return bool(zoo.main(["--runs", "3", "--peers", "traceml"])["passed"])
    figures: dict[str, Any] = importlib.import_module(f"bench.{name}").main()
    print(figures, flush=True)
    if name in OWN_SECTION:
        return bool(figures["passed"])
    figures = flatten(figures)
    results.write_section(name, plain_section(name, figures))
    return all(figures[key] <= bar for key, bar in BARS[name].items())


def flatten(figures: dict[str, Any]) -> dict[str, Any]:
    """`{"a": {"b": 1}}` -> `{"a.b": 1}`."""
    flat: dict[str, Any] = {}
    for key, value in figures.items():
        inner = flatten(value) if isinstance(value, dict) else {"": value}
        flat |= {f"{key}.{name}".rstrip("."): figure for name, figure in inner.items()}
    return flat


def plain_section(name: str, figures: dict[str, Any]) -> str:
    """Figures as they are, a row each, with the bar where there is one."""
    rows = "\n".join(
        f"| {key} | {_show(value)} | {_show(BARS[name].get(key, ''))} |"
        for key, value in figures.items()
    )
    head = f"## {PLAIN[name]}\n\n`python -m bench {name}`, {results.machine()}."
    return f"{head}\n\n| figure | measured | bar |\n| --- | --- | --- |\n{rows}"


def _show(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    unknown = set(sys.argv[1:]) - set(NAMES)
    if unknown:
        sys.exit(f"no such measurement: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    sys.exit(0 if main(sys.argv[1:]) else 1)
