"""Is the bandwidth between ranks measured right? Links of a set rate, and what is found.

Two ranks in network namespaces train over a link with a token bucket, recorded as any job. One job
averages its gradients by hand, parameter by parameter, so that sizes differ; the other uses DDP,
whose exchange overlaps with backward. What TCP can carry is 4.4 % less than what was set: headers.
The bar: within 15 % of the rate that was set. Needs root, ip and tc.

    python -m bench.alpha_beta
"""

from __future__ import annotations

from typing import Any

from bench import results
from bench.zoo.case import Case
from bench.zoo.faults.links import Link
from bench.zoo.record import record

RATES_MBIT = (50, 100, 200)
"""At 400 Mbit/s gloo itself carries 315 to 390 on two cores: the link is not the limit then."""
WRAPS = ("none", "ddp")
BAR_FRAC = 0.15


def main() -> dict[str, Any]:
    """Measure all, write the section, give the figures."""
    rows = [measure(wrap, rate) for wrap in WRAPS for rate in RATES_MBIT]
    worst = max(abs(row["error_frac"]) for row in rows)
    results.write_section("alpha_beta", section(rows))
    return {
        "worst_error_frac": worst,
        "passed": worst <= BAR_FRAC,
        **{f"{row['wrap']}.{row['set_mbit']}_mbit": row["found_mbit"] for row in rows},
    }


def measure(wrap: str, rate_mbit: int) -> dict[str, Any]:
    """One job over one link."""
    size_mb = rate_mbit / 25
    case = Case(
        name=f"alpha-beta-{wrap}-{rate_mbit}",
        sentence="",
        job="ranks",
        args=f"--wrap {wrap} --gradient-mb {size_mb} --steps 30 --log-every 5",
        truth=(("sync", "bandwidth"),),
        ranks=2,
        fault=Link(rate_mbit=rate_mbit),
    )
    missing = case.missing()
    if missing:
        raise RuntimeError(f"a link of a set rate needs {missing}")
    told = record(case, case.name)[1]["collectives"]
    row = {"wrap": wrap, "set_mbit": rate_mbit, **_figures(told, rate_mbit)}
    print(row, flush=True)
    return row


def _figures(told: dict[str, Any], set_mbit: int) -> dict[str, Any]:
    found = told["bytes_per_s"]
    if "value" not in found:
        raise RuntimeError(f"no bandwidth was found: {found}")
    mbit = {name: (found[name] or found["value"]) * 8 / 1e6 for name in ("value", "low", "high")}
    return {
        "found_mbit": round(mbit["value"], 1),
        "low_mbit": round(mbit["low"], 1),
        "high_mbit": round(mbit["high"], 1),
        "error_frac": round(mbit["value"] / set_mbit - 1, 4),
        "latency_ms": round((told["latency_seconds"].get("value") or 0.0) * 1e3, 2),
    }


def section(rows: list[dict[str, Any]]) -> str:
    """The results as Markdown."""
    names = {"none": "all-reduces by hand", "ddp": "DDP"}
    lines = [
        f"| {names[row['wrap']]} | {row['set_mbit']} Mbit/s | {row['found_mbit']} "
        f"({row['low_mbit']} to {row['high_mbit']}) | {row['error_frac']:+.1%} |"
        f" {row['latency_ms']} ms |".replace("%", " %")
        for row in rows
    ]
    return "\n".join(
        [
            "## Bandwidth between ranks, found against set",
            "",
            f"`python -m bench alpha_beta`, {results.machine()}. The bar: within 15 %.",
            "",
            "| job | set | found, Mbit/s (interval) | error | fixed cost |",
            "| --- | --- | --- | --- | --- |",
            *lines,
        ]
    )


if __name__ == "__main__":
    print(main())
