"""PR208 memory-bound: who runs at once slows the others down, though each has a core.

What: while training waits, the workers compute, and the CPU time that a sample takes grows with the
number of workers that run at once, or with the busy cores of the host: an elasticity of at least
one half, and surely more than 0.
Why: CPU time does not count waiting for a core. If it grows, the work itself waits: for the memory
of the host, which all cores share, for a cache that holds less for each, or for the units of a core
that two hardware threads share. Transforms that only move bytes (copies, casts to float32,
stacking, flips) are limited by memory long before the cores are.
Measured by: fetches at the beginning and end of epochs, when few workers run, against the others;
seconds in which other processes run, against those in which they do not.
Threshold: half way between "not at all" and "in proportion". There twice as many workers bring 1.4
times as much; beyond it, less.
Not the same as: too few workers (PR201) or cores (PR202), where another worker or core brings its
full share.
Known problem: a neighbour that fills the memory all the time changes nothing within the run, and is
not seen; `fuelline probe`, run beside it and again without it, shows what it leaves. Nor is one
whose cores this host does not have. Clocks that fall when all cores are busy look the same, but
explain an elasticity of 0.2 at most.
Fix: move fewer bytes: uint8 instead of float32 until the device has it, in-place operations, crop
before converting, fewer passes over a sample. Where it is a neighbour, another host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.cpu import (
    cores_are_short,
    cores_are_taken,
    cpu_evidence,
    prepare_stage,
)
from fuelline.diagnose.evidence.split import split_input
from fuelline.diagnose.rule import LISTED_SHARE, fact, found
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.readings import Reading, at_least, value_of
from fuelline.schema.units import percent, rate

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.ceilings import Probe
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding
    from fuelline.schema.readings import Signal

_SHARED = 0.5


class MemoryBound:
    """Decode or transform x memory."""

    code: Final = "PR208"
    name: Final = "memory-bound"
    stage: Final = "transform"
    limit: Final = "memory"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when preparing dominates the wait and more workers take more time for it."""
        split = split_input(facts)
        if split is None or split.prepare < LISTED_SHARE:
            return None
        if cores_are_taken(facts) and cores_are_short(facts) is not False:
            return None
        is_own, is_beside = _grows(facts.input.cpu_growth), _grows(facts.input.beside_growth)
        if not is_own and not is_beside:
            return None
        stage = prepare_stage(facts)
        who = _EACH_OTHER if is_own else _OTHERS
        return found(
            self,
            facts,
            split.prepare,
            stage=stage,
            sentence=f"{percent(split.prepare)} of training time is spent waiting for workers that "
            f"{who} while they {stage} samples: they share the host's memory, and more of them "
            "bring little.",
            evidence=[
                *_growth(facts, is_own=is_own),
                *_ceiling(facts.probe),
                *cpu_evidence(facts),
            ],
            remedies=[_fewer_bytes(), *([] if is_own else [_elsewhere()])],
        )


_EACH_OTHER = "slow each other down"
_OTHERS = "other processes slow down"


def _grows(growth: Signal) -> bool:
    is_sure = isinstance(growth, Reading) and (growth.low is None or growth.low > 0)
    return is_sure and at_least(growth, _SHARED)


def _growth(facts: Facts, *, is_own: bool) -> list[Evidence]:
    growth = facts.input.cpu_growth if is_own else facts.input.beside_growth
    with_whom = "the workers that run at once" if is_own else "the busy cores of the host"
    return fact(
        lambda v: f"CPU time per sample grows with {with_whom} (elasticity {v:.2f})", growth
    )


def _fewer_bytes() -> Remedy:
    return Remedy(
        setting="move fewer bytes per sample: keep uint8 until the device has the batch, crop "
        "before converting, work in place",
        why="memory is the limit, so only fewer bytes give more samples; the gain shown is for "
        "half of them",
        applicability="unsafe",
        risk="different pre-processing may change the numbers",
        question=WhatIf(transform_factor=2.0),
    )


def _elsewhere() -> Remedy:
    return Remedy(
        setting="run the job where nobody else fills the memory",
        why="its own samples take less CPU time whenever the others are idle",
        applicability="display",
        cost="a host of its own, or another time",
        question=WhatIf(alone=True),
    )


def _ceiling(probe: Probe | None) -> list[Evidence]:
    """What the memory of this host gives, if it was probed."""
    copies = [
        (each, moved)
        for each in (probe.ceilings if probe is not None else ())
        if each.group == "memory" and (moved := value_of(each.signal)) is not None
    ]
    return [
        Evidence(what=f"`fuelline probe`: {each.what}: {rate(moved)}", signal=each.signal)
        for each, moved in copies
    ]
