"""IN105 small-files: opening files takes longer than reading them.

What: while training waits, fetching threads are blocked in open, stat, getdents and the like at
least as much as in reads.
Why: each file costs a lookup and a permission check (on network mounts a round trip each), however
small the file is.
Known problem: a metadata server that others overload looks the same from here unless the others are
on this host (IN103).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.split import split_input
from fuelline.diagnose.evidence.storage import more_in_flight, packed_data, read_evidence
from fuelline.diagnose.rule import LISTED_SHARE, found, where
from fuelline.schema.readings import value_of
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class SmallFiles:
    """Read x latency, in metadata."""

    code: Final = "IN105"
    name: Final = "small-files"
    stage: Final = "read"
    limit: Final = "latency"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when reading dominates the wait and metadata calls dominate reading."""
        split = split_input(facts)
        metadata, reads = value_of(facts.input.metadata_share), value_of(facts.input.read_share)
        if split is None or split.read < LISTED_SHARE or metadata is None or reads is None:
            return None
        if metadata < reads:
            return None
        return found(
            self,
            facts,
            split.read,
            sentence=f"{percent(split.read)} of training time is spent waiting for files to be "
            f"opened on {where(facts.input.place)}: many small files, each with its own round "
            "trip.",
            evidence=read_evidence(facts),
            remedies=[packed_data(facts), more_in_flight(facts)],
        )
