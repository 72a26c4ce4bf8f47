"""Evidence that the rules about imported traces share, and the verdict that they lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from fuelline.diagnose.rule import ENOUGH_SAMPLES, VERDICT_SHARE, fact, found
from fuelline.schema.diagnosis.findings import Evidence, Verdict
from fuelline.schema.readings import Reading, at_least, value_of
from fuelline.schema.units import duration, number, percent

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.diagnose.rule import Rule
    from fuelline.schema.diagnosis.facts import Facts, TraceSignals
    from fuelline.schema.diagnosis.findings import Finding, Remedy
    from fuelline.schema.parts import IdleCause
    from fuelline.schema.run.trace import HostFrame

Confidence = Literal["high", "medium", "low"]

_MOST_NAME = 60
_MOSTLY = 0.5
"""Of a loss: so much in a single stretch of time is no habit."""
_MOST_BOUNDED = 0.8
"""A loss above this leaves so little that what a job differs by from run to run (`LISTED_SHARE`) is
a quarter of it: what would be left is not known well enough to say how many times as fast."""
_SLOWED = ("stacks", "no-launches")
"""Codes of quality after which nobody is certain of what the host took."""
_FILLED = 0.5
"""Of the time that kernels are there: below this the chip is called mostly empty."""


def shorten(name: str) -> str:
    """A kernel's name for one line."""
    return name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 3]}..."


def under(trace: TraceSignals, cause: IdleCause) -> str:
    """`, mostly in cudaFree`, or nothing."""
    name = trace.during.get(cause)
    return f", mostly in {shorten(name)}" if name else ""


def mostly_in(trace: TraceSignals, *causes: IdleCause) -> str:
    """`: 86 % of that in zoom (...) under resize (...)`, or what else is known of these causes."""
    frame = next((trace.frames[cause] for cause in causes if cause in trace.frames), None)
    if frame is None:
        return next((words for cause in causes if (words := under(trace, cause))), "")
    caller = f" under {frame.caller}" if frame.caller else ""
    return f": {percent(frame.share)} of that in {place_of(frame)}{caller}"


def place_of(frame: HostFrame) -> str:
    """`zoom (scipy/ndimage/_interpolation.py:739)`."""
    return f"{frame.function} ({frame.file}:{frame.line})"


def frame_evidence(trace: TraceSignals, *causes: IdleCause) -> list[Evidence]:
    """Where in Python the host was, by the first of these causes that stacks were recorded for."""
    frame = next((trace.frames[cause] for cause in causes if cause in trace.frames), None)
    if frame is None:
        return []
    share = Reading(value=frame.share, unit="frac", count=frame.moments, origin="recorded stacks")
    what = f"{percent(frame.share)} of that idle time lies in {frame.function}"
    found = [Evidence(what=what, signal=share, line=f"{frame.file}:{frame.line}")]
    above = [("called by", frame.caller), ("all within", frame.within), ("your code", frame.user)]
    words = [f"{word} {place}" for word, place in above if place]
    return [*found, *([Evidence(what="; ".join(words))] if words else [])]


def found_in(
    rule: Rule,
    facts: Facts,
    share: float,
    *,
    sentence: str,
    evidence: list[Evidence],
    remedies: list[Remedy],
    confidence: Confidence = "high",
    on_host: bool = False,
    may_gain: bool = True,
) -> Finding:
    """A finding from a trace: as certain as its events are many, and bounded only where it is.

    `on_host`: it rests on how long the host takes, which recording stacks makes longer.
    """
    trace = facts.trace
    is_one = trace is not None and on_host and trace.longest_stretch >= _MOSTLY * share
    if is_one or (trace is not None and 0 < trace.kernels < ENOUGH_SAMPLES):
        confidence = "low"
    elif on_host and trace is not None and any(each.code in _SLOWED for each in trace.quality):
        confidence = "medium" if confidence == "high" else confidence
    made = found(
        rule,
        facts,
        share,
        sentence=sentence,
        evidence=evidence,
        remedies=remedies,
        confidence=confidence,
    )
    if may_gain and made.confidence == "high" and share <= _MOST_BOUNDED:
        return made
    unbounded = [msgspec.structs.replace(each, at_most_speedup=None) for each in made.remedies]
    return msgspec.structs.replace(made, remedies=unbounded)


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
    if (
        trace.doubt
        and not trace.kernels
        and any(each.code == "no-device" for each in trace.quality)
    ):
        whose = (
            "was recorded without the device's activity"
            if trace.launches
            else "is of a job that uses no accelerator, or was recorded without its activity"
        )
        return cannot_tell(
            f"{trace.doubt}. Only the host is in this trace: it {whose}. Record it again with "
            "the device's activity, or record the job with `fuelline run`, which needs none."
        )
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
            f"why{_why_not(trace)}"
        )
    compute = value_of(trace.compute_share) or 0.0
    uncovered = next((each.problem for each in trace.quality if each.code == "uncovered"), None)
    if uncovered is not None:
        return cannot_tell(
            f"kernels compute for {percent(compute)} of the time from the first to the last, but "
            f"{uncovered}. What lies before and after may be part of every step. Mark the steps, "
            "or record several of them."
        )
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


def _why_not(trace: TraceSignals) -> str:
    """What a further recording would have to hold."""
    if any(each.code == "no-host" for each in trace.quality):
        return ". Record it again with host activity."
    return (
        ": its next kernel was queued already, so it waited for something that was not recorded, "
        "as another device. Record it again with all devices and streams."
    )
