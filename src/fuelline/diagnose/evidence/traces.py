"""Evidence that the rules about imported traces share, and the verdict that they lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.diagnose.rule import VERDICT_SHARE, fact
from fuelline.schema.diagnosis.findings import Verdict
from fuelline.schema.readings import at_least, value_of
from fuelline.schema.units import duration, number, percent

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.schema.diagnosis.facts import TraceSignals
    from fuelline.schema.diagnosis.findings import Evidence, Finding
    from fuelline.schema.parts import IdleCause

_MOST_NAME = 60
_FILLED = 0.5
"""Of the time that kernels are there: below this the chip is called mostly empty."""


def shorten(name: str) -> str:
    """A kernel's name for one line."""
    return name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 3]}..."


def under(trace: TraceSignals, cause: IdleCause) -> str:
    """`, mostly in cudaFree`, or nothing."""
    name = trace.during.get(cause)
    return f", mostly in {shorten(name)}" if name else ""


def utilisation_evidence(trace: TraceSignals) -> list[Evidence]:
    """What the driver's counter would show for the same time."""
    return fact(lambda v: f"a utilisation counter would show {percent(v)}", trace.utilisation)


def busy_evidence(trace: TraceSignals) -> list[Evidence]:
    """What the usual counters would show for the same time."""
    return [
        *utilisation_evidence(trace),
        *fact(lambda v: f"useful compute is {percent(v)}", trace.compute_share),
        *fact(lambda v: f"multiprocessors with work: {percent(v)}", trace.fill),
    ]


def launch_evidence(trace: TraceSignals) -> list[Evidence]:
    """How fast the host launches, and how long its kernels are."""
    return [
        *fact(lambda v: f"{number(v)} launches per second and device", trace.launches_per_s),
        *fact(lambda v: f"half of the kernels take less than {duration(v)}", trace.kernel_seconds),
    ]


def judge(
    trace: TraceSignals, findings: list[Finding], cannot_tell: Callable[[str], Verdict]
) -> Verdict:
    """The costliest finding, if the trace carries it; quality first."""
    if trace.doubt:
        return cannot_tell(
            f"{trace.doubt}. What looks idle in this trace may have been busy. Record it again "
            "with all device activity, or sample the device with `fuelline run`."
        )
    unknown = value_of(trace.unknown_share) or 0.0
    if findings and findings[0].lost_share >= max(VERDICT_SHARE, unknown):
        top = findings[0]
        return Verdict(
            code=top.code,
            stage=top.stage,
            limit=top.limit,
            share_of_wall=top.lost_share,
            sentence=top.sentence,
        )
    if unknown >= VERDICT_SHARE:
        return cannot_tell(
            f"the devices were idle for {percent(unknown)} of the time and the trace does not say "
            "why. Record it again with host activity."
        )
    compute = value_of(trace.compute_share) or 0.0
    filled = ""
    if at_least(trace.fill, 0.0) and (value_of(trace.fill) or 0.0) < _FILLED * compute:
        filled = f" Its kernels fill only {percent(value_of(trace.fill) or 0.0)} of the chip."
    return Verdict(
        code="CP400",
        stage="compute",
        limit="math",
        share_of_wall=compute,
        sentence=f"Healthy: kernels compute for {percent(compute)} of the time.{filled}",
    )
