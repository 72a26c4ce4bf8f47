"""What a rule is, and the small words that rules share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from fuelline.schema.diagnosis.findings import Evidence, Finding, Limit, Remedy, Stage
from fuelline.schema.readings import Reading, Signal, value_of
from fuelline.schema.units import percent
from fuelline.schema.worker_count import count_affordable, count_needed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fuelline.schema.diagnosis.facts import Facts, HotLine, PlaceFacts
    from fuelline.schema.run.recording import LoaderFacts

LISTED_SHARE = 0.05
"""A loss below one twentieth of the window is not listed: the same job differs by that much from
run to run on a shared machine (see bench/RESULTS.md, healthy controls)."""
FETCH_SAMPLES = "stack samples taken while fetching"
VERDICT_SHARE = 0.10
"""A loss must reach this to be the verdict: MLPerf Storage calls a device fed at 90 %."""


ENOUGH_SAMPLES = 30
"""Stack samples that name a line: with fewer, a share of 50 % may be anything from 32 to 68 %, and
one hot moment of the job looks like all of it."""

_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib(64)?/python3")


class Rule(Protocol):
    """One root cause."""

    @property
    def code(self) -> str:
        """For machines; never reused."""
        ...

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def stage(self) -> Stage:
        """Of its findings, unless the evidence names a sister stage."""
        ...

    @property
    def limit(self) -> Limit:
        """Of its findings."""
        ...

    def check(self, facts: Facts) -> Finding | None:
        """The finding, if the evidence carries it; None also when a needed signal is Missing."""
        ...


def found(
    rule: Rule,
    facts: Facts,
    share: float,
    *,
    sentence: str,
    evidence: list[Evidence],
    remedies: list[Remedy],
    first: Sequence[Remedy] = (),
    stage: Stage | None = None,
    confidence: Literal["high", "medium", "low"] = "high",
    saved_share: float | None = None,
) -> Finding:
    """A finding of a rule that costs `share` of the window; money is added by the engine.

    `first` are steps that tell which remedy is the right one: they gain nothing by themselves.
    `saved_share` is what its remedies may save, where that may be more than is known to be lost.
    """
    return Finding(
        code=rule.code,
        name=rule.name,
        stage=stage or rule.stage,
        limit=rule.limit,
        sentence=sentence,
        lost_seconds=share * facts.window.seconds,
        lost_share=share,
        confidence="medium" if confidence == "high" and _is_thin(evidence) else confidence,
        evidence=evidence,
        remedies=[*first, *(_bounded(remedy, saved_share or share) for remedy in remedies)],
    )


def _is_thin(evidence: list[Evidence]) -> bool:
    """Whether a line of code is named by a handful of samples."""
    return any(
        each.line is not None
        and isinstance(each.signal, Reading)
        and (each.signal.count or 0) < ENOUGH_SAMPLES
        for each in evidence
    )


def _bounded(remedy: Remedy, share: float) -> Remedy:
    """No remedy gains more than what was lost, nor more than its own bound if it has one."""
    bounds = [
        bound for bound in (remedy.at_most_speedup, speedup_if_gone(share)) if bound is not None
    ]
    return msgspec.structs.replace(remedy, at_most_speedup=min(bounds, default=None))


def fact(sentence: Callable[[float], str], signal: Signal) -> list[Evidence]:
    """One line of evidence from a signal; none if it is missing."""
    if isinstance(signal, Reading):
        return [Evidence(what=sentence(signal.value), signal=signal)]
    return []


def place_fact(place: PlaceFacts | None) -> list[Evidence]:
    """Where threads were blocked: file, mount, file system, system call."""
    if place is None:
        return []
    return [
        Evidence(
            what=f"blocked in {place.syscall or 'a page fault'} on {place.path}",
            path=place.path,
            mount=place.mount or None,
            fstype=place.fstype,
            syscall=place.syscall or None,
        )
    ]


def line_fact(lines: list[HotLine], words: str) -> list[Evidence]:
    """The function of user code that samples hit most, its hottest line, and how many there are."""
    users = [line for line in lines if not _LIBRARY.search(line.line)]
    if not users:
        return []
    by_function: dict[str, float] = {}
    for line in users:
        by_function[line.function] = by_function.get(line.function, 0.0) + line.share
    function = max(by_function, key=lambda name: by_function[name])
    top = next(line for line in users if line.function == function)
    share, samples = by_function[function], round(top.samples / top.share)
    what = f"{percent(share)} of {samples} {words} are in {function}"
    reading = Reading(value=share, unit="frac", count=samples, origin="stacks")
    return [Evidence(what=what, signal=reading, line=top.line, source=top.source)]


def workers_now(facts: Facts) -> int:
    """Of the loader that feeds the steps; 0 if it has none, or that is not known."""
    return (facts.loader.num_workers if facts.loader is not None else None) or 0


def count_workers(facts: Facts) -> int:
    """That keep up, as far as cores go; twice as many where the time of a fetch is not known.

    Where the pipeline model can be fitted, what it recommends takes the place of this number.
    """
    now = workers_now(facts)
    fetch, step = value_of(facts.input.fetch_seconds), facts.steps.mean
    waiting = value_of(facts.input.exposed_share)
    needed = 2 * now
    if fetch is not None and step and waiting is not None:
        needed = count_needed(fetch, step * (1 - waiting))
    allowed = value_of(facts.cores.allowed) or 1.0
    computing, queued = value_of(facts.input.cpu_share), value_of(facts.input.core_wait_share)
    alone = 1.0 if computing is None else computing / max(1 - (queued or 0.0), 1e-9)
    affordable = count_affordable(allowed / max(1, facts.cores.ranks), min(1.0, alone))
    return max(now + 1, min(max(needed, 2), affordable))


def gain_of_workers(loader: LoaderFacts | None, workers: int) -> float | None:
    """At most this many times as fast with that many workers; None if that is not known.

    Fetching then takes old / new of its time. The first workers also take it out of the training
    process, which is worth one more: what it computes overlaps with them.
    """
    if loader is None or loader.num_workers is None:
        return None
    return workers / loader.num_workers if loader.num_workers else workers + 1.0


def fewer_tensors() -> Remedy:
    """For batches whose handles are the price of handing them over."""
    return Remedy(
        setting="join the fields of a sample into fewer tensors, and take them apart in the loop",
        why="each tensor is handed over by its own handle, which costs the same for any size",
        applicability="unsafe",
        risk="the training loop must accept the new layout",
    )


def where(place: PlaceFacts | None) -> str:
    """`/data (nfs4)`, or `storage` if it could not be resolved."""
    if place is None:
        return "storage"
    return f"{place.mount} ({place.fstype})" if place.mount else f"the network ({place.path})"


def speedup_if_gone(lost_share: float) -> float | None:
    """Upper bound of the gain if the whole loss vanished; None if nothing measured was lost."""
    return 1 / (1 - lost_share) if 0 < lost_share < 0.99 else None
