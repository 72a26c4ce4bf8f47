"""PR202 too-little-cpu: samples wait for a core.

What: while the accelerator waits, the fetching threads compute or want to, but no core is free: a
CPU quota stops them, affinity confines them, other processes take the cores, or there are too few
cores.
Told apart from: too few workers (PR201), by which remedy would gain more; throttling by a quota
counts from 5 % of the window: medians hide it, the tail pays. And from one slow function (PR203),
when the job has all cores to itself.
Fix: a higher quota or more cores per accelerator; not more workers, which only queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.cpu import THROTTLED, cores_are_short, cpu_evidence, prepare_stage
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
        stage = prepare_stage(facts)
        return found(
            self,
            facts,
            split.prepare,
            stage=stage,
            sentence=f"{percent(split.prepare)} of the time the accelerator waits for a core to "
            f"{stage} "
            f"samples on: {_why(facts)}.",
            evidence=[
                *fact(
                    lambda v: f"its CPU quota stops it in {percent(v)} of the scheduler's periods",
                    facts.cores.throttled_share,
                ),
                *cpu_evidence(facts),
            ],
            remedies=[
                Remedy(
                    setting="give the job more CPU cores per accelerator (quota, cpuset or "
                    "instance type)",
                    why="the workers have more to compute than the cores they get; the gain is "
                    f"for {number(_more_cores(facts))}",
                    applicability="display",
                    cost="cores that others may want",
                    question=WhatIf(cores=_more_cores(facts)),
                ),
                Remedy(
                    setting="decode smaller or pre-processed samples; move augmentation to the "
                    "accelerator",
                    why="less CPU time per sample feeds more samples from the same cores; the gain "
                    "is for half of it",
                    applicability="unsafe",
                    risk="other pre-processing may change the numbers",
                    question=WhatIf(transform_factor=2.0),
                ),
            ],
        )


def _more_cores(facts: Facts) -> float:
    """All cores of the host if the job may use only some, else twice as many."""
    allowed, host = value_of(facts.cores.allowed) or 1.0, value_of(facts.cores.host) or 1.0
    return host if allowed < host else 2 * allowed


def _why(facts: Facts) -> str:
    allowed, host = value_of(facts.cores.allowed), value_of(facts.cores.host)
    others = value_of(facts.cores.others) or 0.0
    if at_least(facts.cores.throttled_share, THROTTLED) and allowed is not None:
        return f"its quota of {number(allowed)} cores stops it again and again"
    if allowed is not None and host is not None and allowed < host:
        return f"it may use {number(allowed)} of {number(host)} cores"
    if others >= 0.5:
        return f"other processes use {others:.1f} of {number(host or 0)} cores"
    return f"all {number(allowed or 0)} cores are in use"
