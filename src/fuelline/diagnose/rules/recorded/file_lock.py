"""IN106 file-lock: workers queue for a lock on a file, so adding workers does not help.

What: while training waits, the threads that fetch batches are blocked in flock or fcntl on a file,
more than in reading.
Why: code that locks a file for every sample (HDF5 and SQLite wrappers, caches with a lock file)
lets one process through at a time; on network mounts each lock is also a round trip to the server.
Threshold: the queue, including whoever holds the lock, takes at least as much of the fetch time as
reads and opens do; below that the lock is the smaller part of the storage's delay.
Known problem: a lock that is polled with a sleep in between (`filelock`) shows up as sleep in a
function (PR203), which names the line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.split import split_input, takes_turns
from fuelline.diagnose.rule import (
    FETCH_SAMPLES,
    LISTED_SHARE,
    fact,
    found,
    line_fact,
    place_fact,
)
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts, PlaceFacts
    from fuelline.schema.diagnosis.findings import Finding


class FileLock:
    """Read x contention, at a lock."""

    code: Final = "IN106"
    name: Final = "file-lock"
    stage: Final = "read"
    limit: Final = "contention"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when reading dominates the wait and a lock dominates reading."""
        split = split_input(facts)
        if split is None or split.read < LISTED_SHARE or not takes_turns(facts):
            return None
        place = facts.input.lock_place
        return found(
            self,
            facts,
            split.read,
            sentence=f"{percent(split.read)} of training time is spent waiting while the fetching "
            f"processes queue for a lock on {_name(place)}: only one works at a time.",
            evidence=[
                *place_fact(place),
                *fact(
                    lambda v: f"{percent(v)} of fetch time is spent waiting for a file lock",
                    facts.input.file_lock_share,
                ),
                *line_fact(facts.fetch_lines, FETCH_SAMPLES),
            ],
            remedies=[
                Remedy(
                    setting="open the file once in each worker, read-only and without a lock "
                    "(HDF5: HDF5_USE_FILE_LOCKING=FALSE), or give each worker its own copy or part",
                    why="readers need no lock against each other; more workers only make the "
                    "queue longer",
                    applicability="display",
                )
            ],
        )


def _name(place: PlaceFacts | None) -> str:
    return "a file" if place is None else place.path
