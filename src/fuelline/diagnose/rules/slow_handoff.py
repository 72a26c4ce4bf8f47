"""HO301 slow-handoff: batches are ready, but joining and moving them takes the time.

What: the accelerator waits while samples are collated, pickled by workers, or unpickled by the
trainer.
Told by: the trainer's own CPU time inside next(); idle workers beside a busy serialiser; more than
half of a fetch spent in collate.
Why: batches of many small Python objects are pickled one by one; tensors travel as handles.
Fix: return tensors or arrays, not nested lists and dicts; collate in fewer, larger copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.rule import LISTED_SHARE, fact, found, line_fact
from fuelline.diagnose.split import split_input
from fuelline.schema.findings import Remedy
from fuelline.schema.readings import value_of
from fuelline.schema.units import percent, size

if TYPE_CHECKING:
    from fuelline.schema.facts import Facts
    from fuelline.schema.findings import Finding


class SlowHandoff:
    """Handoff x code."""

    code: Final = "HO301"
    name: Final = "slow-handoff"
    stage: Final = "handoff"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when collate or serialisation dominates the wait."""
        split = split_input(facts)
        if split is None or split.handoff < LISTED_SHARE:
            return None
        return found(
            self,
            facts,
            split.handoff,
            sentence=f"{percent(split.handoff)} of the time the accelerator waits for batches "
            f"that are ready "
            f"but still being {_action(facts)}.",
            evidence=[
                *fact(
                    lambda v: f"{percent(v)} of the wait the trainer unpickles",
                    facts.input.unpickle_share,
                ),
                *fact(
                    lambda v: f"pickling takes {percent(v)} of the time of fetching",
                    facts.input.pickle_share,
                ),
                *fact(lambda v: f"{percent(v)} of a fetch is collate", facts.input.collate_share),
                *fact(
                    lambda v: f"{percent(v)} of worker time is idle meanwhile",
                    facts.input.idle_share,
                ),
                *fact(lambda v: f"{size(v)} of tensors in a batch", facts.input.batch_bytes),
                *line_fact(facts.fetch_lines, "the fetchers' stack samples"),
            ],
            remedies=[
                Remedy(
                    setting="return one tensor per field from collate_fn instead of lists of "
                    "Python objects",
                    why="tensors are handed over as shared memory; objects are pickled one by one",
                    applicability="unsafe",
                    risk="the training loop must accept the other layout",
                )
            ],
        )


def _action(facts: Facts) -> str:
    unpickle = value_of(facts.input.unpickle_share) or 0.0
    pickle = value_of(facts.input.pickle_share) or 0.0
    collate = value_of(facts.input.collate_share) or 0.0
    if collate > max(unpickle, pickle, 0.5):
        return "collated"
    return "unpickled by the trainer" if unpickle > 0.3 else "pickled by the workers"
