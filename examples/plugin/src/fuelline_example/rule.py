"""EX101 team-storage: the training waits for input, and the team has a faster place for its data.

What: the loop waits for batches for at least a twentieth of the time.
Why: on this team's machines new data lands on the archive; `/fast` is ten times quicker.
"""

from __future__ import annotations

from typing import Final

from fuelline.plugins import LISTED_SHARE, Evidence, Facts, Finding, Remedy, found


class TeamStorage:
    """Read x bandwidth, in one team's words."""

    code: Final = "EX101"
    name: Final = "team-storage"
    stage: Final = "read"
    limit: Final = "bandwidth"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when waiting for input shows; stays silent about imported traces."""
        share = facts.exposed_share_of("input")
        if facts.trace is not None or share < LISTED_SHARE:
            return None
        return found(
            self,
            facts,
            share,
            sentence="Training waits for input: stage the data on /fast.",
            evidence=[Evidence(what=f"the loop waits for batches {share:.0%} of the time")],
            remedies=[
                Remedy(
                    setting="stage-data --to /fast",
                    why="the archive is slow, /fast is local flash",
                    applicability="display",
                )
            ],
            confidence="low",  # a hint: it never becomes the verdict
        )
