"""PA501 checkpoint-pause: training stops while a checkpoint is written.

What: time inside torch.save on the training thread.
Threshold: 5 % of the window to be listed, 10 % to be the verdict. A checkpoint costs the
accelerator nothing only if it is written while training goes on.
Fix: save less often, save a copy in the background, or save to a faster disk.
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
            sentence=f"Training stops for {percent(share)} of the time while checkpoints are "
            "written.",
            evidence=[
                Evidence(what=f"{duration(seconds)} inside torch.save on the training thread")
            ],
            remedies=[
                Remedy(
                    setting="torch.distributed.checkpoint.async_save(...), or save a copy from "
                    "another thread",
                    why="the copy takes milliseconds; it can be written while training goes on",
                    applicability="unsafe",
                    risk="needs memory for one more copy of the state",
                ),
                Remedy(
                    setting="save a tenth as often, or to a local disk first",
                    why="each save stops every accelerator of the job",
                    applicability="display",
                    cost="more work is lost if the job dies",
                    question=WhatIf(rarer={"checkpoint": 10.0}),
                ),
            ],
        )
