"""IN106 file-lock: workers queue at a lock of a file, so that more of them bring nothing.

What: while the accelerator waits, the threads that fetch batches are blocked in flock or fcntl on a
file, more than in reading.
Why: who locks a file for every sample (HDF5 and SQLite wrappers, caches with a lock file) lets one
process at a time through, on network mounts with a round trip to the lock's server.
Threshold: the queue, with what its head does meanwhile, takes at least as much of the fetching as
reads and opens do; below that the lock is the smaller part of the storage's delay.
Known problem: a lock that is tried again and again with a sleep in between (`filelock`) shows as
sleep in a function (PR203), which names the line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.split import split_input, takes_turns
from fuelline.diagnose.rule import LISTED_SHARE, fact, found, line_fact, place_fact
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
            sentence=f"{percent(split.read)} of the time the accelerator waits while the fetching "
            f"processes queue at a lock of {_name(place)}: one works at a time.",
            evidence=[
                *place_fact(place),
                *fact(
                    lambda v: f"{percent(v)} of fetching is waiting for a lock of a file",
                    facts.input.file_lock_share,
                ),
                *line_fact(facts.fetch_lines, "the fetchers' stack samples"),
            ],
            remedies=[
                Remedy(
                    setting="open the file once in each worker, for reading only and without a "
                    "lock (HDF5: HDF5_USE_FILE_LOCKING=FALSE); or give each worker a copy or a "
                    "part of its own",
                    why="readers need no lock against one another; more workers only make the "
                    "queue longer",
                    applicability="display",
                )
            ],
        )


def _name(place: PlaceFacts | None) -> str:
    return "a file" if place is None else place.path
