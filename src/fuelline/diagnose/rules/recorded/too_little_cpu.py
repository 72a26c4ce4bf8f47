"""PR202 too-little-cpu: samples wait for a core.

What: while training waits, the fetching threads compute or are ready to, but no core is free: a CPU
quota stops them, affinity confines them, other processes take the cores, or there are too few
cores.
Not the same as: too few workers (PR201); the remedy that would gain more decides. Throttling by a
quota counts from 5 % of the window: medians hide it, but the tail suffers. Nor as one slow function
(PR203), when the job has all cores to itself.
Fix: a higher quota or more cores per accelerator; not more workers, which would only queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.cpu import (
    THROTTLED,
    cores_are_short,
    cpu_evidence,
    name_preparing,
    prepare_stage,
)
from fuelline.diagnose.evidence.decoding import decode_quicker
from fuelline.diagnose.evidence.split import split_input
from fuelline.diagnose.rule import LISTED_SHARE, fact, found
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.readings import at_least, value_of
from fuelline.schema.units import number, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class TooLittleCpu:
    """Decode or transform x cores."""

    code: Final = "PR202"
    name: Final = "too-little-cpu"
    stage: Final = "transform"
    limit: Final = "cores"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when preparing dominates the wait and no core is free."""
        split = split_input(facts)
        if split is None or split.prepare < LISTED_SHARE or not cores_are_short(facts):
            return None
        return found(
            self,
            facts,
            split.prepare,
            stage=prepare_stage(facts),
            sentence=f"{percent(split.prepare)} of training time is spent waiting for data: there "
            f"is no free core to {name_preparing(facts)} samples on, because {_why(facts)}.",
            evidence=[
                *fact(
                    lambda v: f"the CPU quota stops the job in {percent(v)} of scheduler periods",
                    facts.cores.throttled_share,
                ),
                *cpu_evidence(facts),
            ],
            remedies=[
                Remedy(
                    setting="give the job more CPU cores (quota, cpuset or instance type)",
                    why="the workers need more CPU than they get; the gain shown is for "
                    f"{number(_more_cores(facts))} cores",
                    applicability="display",
                    cost="cores that others may want",
                    question=WhatIf(cores=_more_cores(facts)),
                ),
                *(decode_quicker(facts) or [_prepare_less()]),
            ],
        )


def _prepare_less() -> Remedy:
    return Remedy(
        setting="decode smaller or pre-processed samples, or move augmentation to the accelerator",
        why="less CPU time per sample gives more samples from the same cores; the gain shown is "
        "for half the time",
        applicability="unsafe",
        risk="different pre-processing may change the numbers",
        question=WhatIf(transform_factor=2.0),
    )


def _more_cores(facts: Facts) -> float:
    """All cores of the host if the job may use only some, else twice as many."""
    allowed, host = value_of(facts.cores.allowed) or 1.0, value_of(facts.cores.host) or 1.0
    return host if allowed < host else 2 * allowed


def _why(facts: Facts) -> str:
    allowed, host = value_of(facts.cores.allowed), value_of(facts.cores.host)
    others = value_of(facts.cores.others) or 0.0
    if at_least(facts.cores.throttled_share, THROTTLED) and allowed is not None:
        return f"its quota of {number(allowed)} cores keeps stopping the job"
    if allowed is not None and host is not None and allowed < host:
        return f"the job may use only {number(allowed)} of {number(host)} cores"
    if others >= 0.5:
        return f"other processes use {others:.1f} of {number(host or 0)} cores"
    return f"all {number(allowed or 0)} cores are in use"
