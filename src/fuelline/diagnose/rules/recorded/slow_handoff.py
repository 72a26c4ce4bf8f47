"""HO301 slow-handoff: batches are ready, but moving them from workers to the trainer takes long.

What: training waits while batches are pickled by workers or unpickled by the trainer.
Measured by: the trainer's own CPU time inside next(); idle workers beside a busy serialiser.
Why: batches of many small Python objects are pickled one by one; tensors travel as handles, each of
which has its price too.
Not the same as: a slow collate function (HO302), which works before a batch is ready; batches so
small that the message alone is the price (CP401).
Fix: return tensors or arrays, not nested lists and dicts; where hardly anything is pickled, use
fewer tensors or larger batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.split import FEW_OBJECTS_BYTES, SMALL_BYTES, is_message, split_input
from fuelline.diagnose.rule import (
    FETCH_SAMPLES,
    LISTED_SHARE,
    fact,
    fewer_tensors,
    found,
    line_fact,
)
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.readings import value_of
from fuelline.schema.units import percent, size

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding
    from fuelline.schema.run.recording import LoaderFacts


class SlowHandoff:
    """Handoff x code."""

    code: Final = "HO301"
    name: Final = "slow-handoff"
    stage: Final = "handoff"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when serialisation dominates the wait."""
        split = split_input(facts)
        if split is None or split.handoff < LISTED_SHARE or is_message(facts):
            return None
        return found(
            self,
            facts,
            split.handoff,
            sentence=f"{percent(split.handoff)} of training time is spent waiting for "
            f"{_action(facts)}.",
            evidence=[
                *fact(
                    lambda v: f"the training process spends {percent(v)} of the wait unpickling",
                    facts.input.unpickle_share,
                ),
                *fact(
                    lambda v: f"the workers together spend {percent(v)} of the wait pickling",
                    facts.input.pickle_share,
                ),
                *fact(
                    lambda v: f"the workers are idle {percent(v)} of that time",
                    facts.input.idle_share,
                ),
                *fact(lambda v: f"a batch holds {size(v)} of tensors", facts.input.batch_bytes),
                *fact(lambda v: f"{size(v)} of a batch is pickled", facts.input.pickled_bytes),
                *line_fact(facts.fetch_lines, FETCH_SAMPLES),
            ],
            remedies=_remedies(facts),
        )


def _action(facts: Facts) -> str:
    if (value_of(facts.input.unpickle_share) or 0.0) > 0.3:
        return "batches that are ready but still being unpickled by the trainer"
    if (value_of(facts.input.pickle_share) or 0.0) > 0.5:
        return "batches that are ready but still being pickled by the workers"
    return "batches that are ready but still on their way from the workers"


def _remedies(facts: Facts) -> list[Remedy]:
    pickled = value_of(facts.input.pickled_bytes)
    is_of_tensors = pickled is not None and pickled < FEW_OBJECTS_BYTES
    remedy = fewer_tensors() if is_of_tensors else _no_objects(facts.loader)
    batch = facts.loader.batch_size if facts.loader is not None else None
    size_bytes = value_of(facts.input.batch_bytes)
    if not batch or size_bytes is None or size_bytes > SMALL_BYTES:
        return [remedy]
    both = [remedy, _hand_over_less_often(batch)]
    return both[::-1] if is_of_tensors else both


def _no_objects(loader: LoaderFacts | None) -> Remedy:
    is_default = loader is not None and loader.collate == "default"
    who = "the data set's samples" if is_default else "collate_fn"
    return Remedy(
        setting=f"return one tensor per field from {who} instead of lists of Python objects",
        why="tensors are handed over as shared memory; objects are pickled one by one",
        applicability="unsafe",
        risk="the training loop must accept the new layout",
        question=WhatIf(handoff_factor=10.0),
    )


def _hand_over_less_often(batch: int) -> Remedy:
    return Remedy(
        setting=f"batch_size={2 * batch}",
        why="a large batch costs no more to hand over than a small one, and there are half as many",
        applicability="unsafe",
        risk="a different batch size trains differently; the learning rate may have to follow",
        question=WhatIf(batch_size=2 * batch),
    )
