"""PR201 too-few-workers: too few processes prepare samples while cores are free.

What: while training waits, the fetching threads compute, and there are fewer of them than cores
that the job may use.
Not the same as: too little CPU (PR202). The remedy that would gain more decides: more workers could
fill the allowed cores; more cores could remove the time spent waiting for one.
Fix: more workers, up to the number of cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.cpu import (
    cores_are_short,
    cpu_evidence,
    more_workers,
    name_crew,
    name_preparing,
    prepare_stage,
)
from fuelline.diagnose.evidence.decoding import decode_quicker
from fuelline.diagnose.evidence.split import split_input
from fuelline.diagnose.rule import LISTED_SHARE, found
from fuelline.schema.readings import value_of
from fuelline.schema.units import number, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class TooFewWorkers:
    """Decode or transform x parallelism."""

    code: Final = "PR201"
    name: Final = "too-few-workers"
    stage: Final = "transform"
    limit: Final = "parallelism"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when preparing dominates the wait and a core is free."""
        split = split_input(facts)
        if split is None or split.prepare < LISTED_SHARE or cores_are_short(facts) is not False:
            return None
        return found(
            self,
            facts,
            split.prepare,
            stage=prepare_stage(facts),
            sentence=f"{percent(split.prepare)} of training time is spent waiting for data: "
            f"{name_crew(facts.loader)} cannot {name_preparing(facts)} samples fast enough"
            f"{_room(facts)}.",
            evidence=cpu_evidence(facts),
            remedies=[more_workers(facts), *decode_quicker(facts)],
        )


def _room(facts: Facts) -> str:
    allowed = value_of(facts.cores.allowed)
    return f", though the job may use {number(allowed)} cores" if allowed is not None else ""
