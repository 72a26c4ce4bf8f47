"""HO302 slow-collate: workers take longer to join samples into batches than to make them.

What: while training waits, the workers compute, and more than half of their fetches is spent in the
collate function.
Why: a collate function that pads, stacks or copies sample by sample does each of its steps once per
sample, in Python.
Not the same as: a slow hand-over (HO301), when the batch is ready and still has to be pickled;
workers that idle while the trainer waits do not keep it waiting by collating.
Fix: allocate the batch once and copy each sample into it; with torch's own collate function, have
the data set return whole batches; more workers where cores are free, since each collates its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.cpu import cores_are_short, cpu_evidence, more_workers
from fuelline.diagnose.evidence.split import split_input
from fuelline.diagnose.rule import LISTED_SHARE, fact, found
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class SlowCollate:
    """Collate x code."""

    code: Final = "HO302"
    name: Final = "slow-collate"
    stage: Final = "collate"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when collating is most of what the workers do while training waits."""
        split = split_input(facts)
        if split is None or split.collate < LISTED_SHARE:
            return None
        return found(
            self,
            facts,
            split.collate,
            sentence=f"{percent(split.collate)} of training time is spent waiting for samples to "
            "be joined into batches (collate).",
            evidence=[
                *fact(
                    lambda v: f"collating takes {percent(v)} of a fetch", facts.input.collate_share
                ),
                *cpu_evidence(facts),
            ],
            remedies=[_collate_quicker(facts), *_collate_in_parallel(facts)],
        )


def _collate_quicker(facts: Facts) -> Remedy:
    return Remedy(
        setting=_setting(facts.loader.collate if facts.loader is not None else None),
        why="most of a fetch goes into joining samples, not into making them; the gain shown is "
        "for half the time",
        applicability="display",
        question=WhatIf(transform_factor=2.0),
    )


def _collate_in_parallel(facts: Facts) -> list[Remedy]:
    """Workers collate, so more of them collate in parallel if there are cores."""
    return [more_workers(facts)] if cores_are_short(facts) is False else []


def _setting(name: str | None) -> str:
    if name == "default":
        return (
            "have the data set return whole batches (`__getitems__` and collate_fn=lambda b: b), "
            "so that torch need not join samples one by one"
        )
    return f"speed up {name or 'collate_fn'}: allocate the batch once and copy each sample into it"
