"""PA501 checkpoint-pause: the loop stands still while a checkpoint is written.

What: time inside torch.save on the training thread.
Threshold: 5 % of the window to be listed, 10 % to be the verdict; a checkpoint costs nothing to the
accelerator only if it is written while training goes on.
Fix: save less often, save from a copy in the background, save to a faster disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.rule import LISTED_SHARE, found
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class CheckpointPause:
    """Pause x code, in saving."""

    code: Final = "PA501"
    name: Final = "checkpoint-pause"
    stage: Final = "pause"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires on the time spent in saving."""
        share = facts.share_of("checkpoint")
        if share < LISTED_SHARE:
            return None
        seconds = share * facts.window.seconds
        return found(
            self,
            facts,
            share,
            sentence=f"{percent(share)} of the time training stands still while checkpoints are "
            f"written.",
            evidence=[
                Evidence(what=f"{duration(seconds)} inside torch.save on the training thread")
            ],
            remedies=[
                Remedy(
                    setting="torch.distributed.checkpoint.async_save(...) or save from a copy "
                    "in a thread",
                    why="the copy takes milliseconds; writing it can happen while training goes on",
                    applicability="unsafe",
                    risk="one more copy of the state in memory",
                ),
                Remedy(
                    setting="save 10 times less often, or to a local disk first",
                    why="each save stops all accelerators of the job",
                    applicability="display",
                    cost="more work is lost when the job dies",
                    question=WhatIf(rarer={"checkpoint": 10.0}),
                ),
            ],
        )
