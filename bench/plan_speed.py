"""How fast is `plan serve` over everything: all chips x parallelism x batch, a cold process each.

The bar: at most 2 s and 300 MB. Models: a dense one, and a mixture of experts with
latent attention. Half a minute on a quiet machine.

    python -m bench.plan_speed
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any

from bench import results

MODELS = ("llama-3.1-70b", "deepseek-v3")
RUNS = 7
MOST_S, MOST_BYTES = 2.0, 300e6
_SCRIPT = """
import json, resource, sys, time
start = time.perf_counter()
from fuelline.cli import main
sys.stdout = open("/dev/null", "w")
code = main(["plan", "serve", sys.argv[1], "--in", "2048", "--out", "256", "--rate", "20",
             "--slo", "ttft=2s,tpot=100ms", "--precision", "fp8"])
wall = time.perf_counter() - start
used = resource.getrusage(resource.RUSAGE_SELF)
sys.__stdout__.write(json.dumps({"wall_s": wall, "cpu_s": used.ru_utime + used.ru_stime,
                                 "rss_bytes": used.ru_maxrss * 1024, "code": code}))
"""


def main() -> dict[str, Any]:
    """Measure, write the section, give the figures."""
    figures = {name: measure(name) for name in MODELS}
    worst_s = max(each["wall_s"] for each in figures.values())
    worst_bytes = max(each["rss_bytes"] for each in figures.values())
    results.write_section("plan_speed", section(figures))
    return {
        "worst_wall_s": worst_s,
        "worst_rss_bytes": worst_bytes,
        "passed": worst_s <= MOST_S and worst_bytes <= MOST_BYTES,
        **figures,
    }


def measure(model: str) -> dict[str, float]:
    """Medians over cold processes."""
    runs = []
    for _ in range(RUNS):
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, model], capture_output=True, text=True, check=True
        )
        runs.append(json.loads(done.stdout))
    return {
        key: statistics.median(run[key] for run in runs) for key in ("wall_s", "cpu_s", "rss_bytes")
    }


def section(figures: dict[str, dict[str, float]]) -> str:
    """The results as Markdown."""
    rows = [
        f"| {name} | {each['wall_s']:.2f} s | {each['cpu_s']:.2f} s "
        f"| {each['rss_bytes'] / 1e6:.0f} MB |"
        for name, each in figures.items()
    ]
    about = (
        f"`python -m bench.plan_speed`, {results.machine()}, medians of {RUNS} cold processes, "
        "imports included; the machine may be shared. All chips x parallelism x batch. The bar: "
        "2 s, 300 MB "
        "(aiconfigurator takes 5 to 40 s to start)."
    )
    return "\n".join(
        [
            "## Speed of a full search for serving",
            "",
            about,
            "",
            "| model | wall | CPU | resident |",
            "| --- | --- | --- | --- |",
            *rows,
        ]
    )


if __name__ == "__main__":
    print(main())
