"""PR206 blocked-workers: whoever prepares samples is blocked, and there are too few of them.

What: while training waits, the fetching threads are neither on a core nor reading files: they sleep
(a client that keeps to a rate), wait for a service behind a socket, or for another process.
Why: such a wait takes as long on any machine. Cores do not shorten it and are not its cap: a worker
that waits needs none.
Not the same as: reading (IN101 to IN106), too few workers that compute (PR201), or a service that
serves one at a time (PR207), where more workers only queue.
Fix: more workers, or several requests at once in each; or fewer requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.blocked import blocked_evidence, is_serial
from fuelline.diagnose.evidence.cpu import name_crew
from fuelline.diagnose.evidence.split import split_input
from fuelline.diagnose.evidence.storage import more_in_flight
from fuelline.diagnose.rule import LISTED_SHARE, found
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class BlockedWorkers:
    """Fetch x parallelism."""

    code: Final = "PR206"
    name: Final = "blocked-workers"
    stage: Final = "fetch"
    limit: Final = "parallelism"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when waiting for something other than files dominates the fetches."""
        split = split_input(facts)
        if split is None or split.fetch < LISTED_SHARE or is_serial(facts):
            return None
        workers = facts.loader.num_workers if facts.loader is not None else None
        verb = "are" if workers is not None and workers > 1 else "is"
        return found(
            self,
            facts,
            split.fetch,
            sentence=f"{percent(split.fetch)} of training time is spent waiting for data: "
            f"{name_crew(facts.loader)} {verb} blocked most of the time (asleep, or waiting for a "
            "service), which needs more fetches at once and no core.",
            evidence=blocked_evidence(facts),
            remedies=[more_in_flight(facts)],
        )
