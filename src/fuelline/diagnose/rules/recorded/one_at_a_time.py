"""PR207 one-at-a-time: workers wait for a service that serves one of them at a time.

What: while training waits, the fetching threads are blocked, not in reading files, and a fetch
takes the longer the more of them are in progress: epochs that begin and end show it.
Why: what they wait for takes turns. All workers together get what one of them would, so that the
time of each request is what counts, and more workers only make the queue longer.
Not the same as: blocked workers whose waits do not depend on each other (PR206); locks among the
workers themselves (PR205); a storage that is full (IN102).
Threshold: growth of at least one half, with an interval above zero, and at least two workers.
Fix: fewer or larger requests, a second instance of the service, or keeping what it returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.blocked import blocked_evidence, is_serial
from fuelline.diagnose.evidence.split import split_input
from fuelline.diagnose.rule import LISTED_SHARE, fact, found
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class OneAtATime:
    """Fetch x latency."""

    code: Final = "PR207"
    name: Final = "one-at-a-time"
    stage: Final = "fetch"
    limit: Final = "latency"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when blocked fetches were seen to wait for each other."""
        split = split_input(facts)
        if split is None or split.fetch < LISTED_SHARE or not is_serial(facts):
            return None
        return found(
            self,
            facts,
            split.fetch,
            sentence=f"{percent(split.fetch)} of training time is spent waiting for something that "
            "serves one loader worker at a time: more workers would only queue.",
            evidence=[
                *fact(
                    lambda v: (
                        "with twice as many fetches in progress each is blocked "
                        f"{2**v:.1f} times as long"
                    ),
                    facts.input.blocked_growth,
                ),
                *blocked_evidence(facts),
            ],
            remedies=[
                Remedy(
                    setting="ask for a whole batch in one request (__getitems__), keep what was "
                    "returned, or run a second instance of what the workers wait for",
                    why="it takes turns, so that only fewer or shorter requests, or more of it, "
                    "bring more",
                    applicability="display",
                    cost="work on the data set, or on the service",
                )
            ],
        )
