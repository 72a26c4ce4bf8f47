"""PA505 epoch-restart: every epoch begins with a wait.

What: time to build the loader's iterator, to get the first batch of an epoch and to end the last
one, from the second epoch on. The very first epoch's start is outside the window.
Why: without persistent workers every epoch starts new processes, which import and open everything
again.
Fix: persistent_workers=True; longer epochs where workers are kept already, or there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.tf_data import is_tf_data, longer_epochs
from fuelline.diagnose.rule import LISTED_SHARE, found
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.diagnosis.trials import RISK_OF_STAYING
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class EpochRestart:
    """Pause x code, at the start of epochs."""

    code: Final = "PA505"
    name: Final = "epoch-restart"
    stage: Final = "pause"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires on the time that epochs take to begin and end."""
        share = facts.exposed_share_of("epoch start")
        if share < LISTED_SHARE or not facts.begins_again:
            return None
        seconds = share * facts.window.seconds
        workers = facts.loader.num_workers if facts.loader is not None else None
        persistent = facts.loader is not None and facts.loader.persistent_workers
        return found(
            self,
            facts,
            share,
            sentence=f"{percent(share)} of training time is spent waiting for epochs to begin.",
            evidence=[
                Evidence(
                    what=f"{duration(seconds)} to start {_whom(facts)}, get first batches and end "
                    "epochs"
                )
            ],
            remedies=[longer_epochs()]
            if is_tf_data(facts.loader)
            else _remedies(workers, persistent=bool(persistent)),
        )


def _whom(facts: Facts) -> str:
    return "the pipeline" if is_tf_data(facts.loader) else "workers"


def _remedies(workers: int | None, *, persistent: bool) -> list[Remedy]:
    """Longer epochs change the code of the job, and are not proposed while one word may do."""
    if workers and not persistent:
        return [
            Remedy(
                setting="DataLoader(..., persistent_workers=True)",
                why="workers, and the files they have opened, then live through all epochs",
                applicability="unsafe",
                risk=RISK_OF_STAYING,
                question=WhatIf(persistent=True),
            )
        ]
    longer = Remedy(
        setting="longer epochs: repeat the data set 10 times inside the sampler",
        why="the queue of batches runs empty at the end of every epoch",
        applicability="unsafe",
        risk="whatever the code does once per epoch happens less often",
        question=WhatIf(rarer={"epoch start": 10.0}),
    )
    return [longer]
