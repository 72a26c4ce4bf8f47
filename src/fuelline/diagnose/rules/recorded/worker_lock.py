"""PR205 worker-lock: loader workers take turns at a lock in memory, so that one works at a time.

What: while the accelerator waits, the fetching processes stand at a lock (multiprocessing.Lock, a
semaphore) that another of them holds.
Why: a data set that guards something which is not safe for several processes makes all workers as
fast as one. More of them make the queue longer.
Told apart from: locks of files (IN106) by the system call; from threads of one worker that wait for
its other threads, by what those do.
Threshold: the queue, with what its head does meanwhile, takes at least half of the fetching; below
that the work outside of the lock is the larger part, and its rules speak.
Fix: give each worker its own copy of what the lock guards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.split import memory_queue, split_input
from fuelline.diagnose.rule import LISTED_SHARE, fact, found, line_fact
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding

_MOSTLY_QUEUED = 0.5


class WorkerLock:
    """Transform x code, at a lock."""

    code: Final = "PR205"
    name: Final = "worker-lock"
    stage: Final = "transform"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when preparing dominates the wait and workers take turns at it."""
        split = split_input(facts)
        if split is None or split.prepare < LISTED_SHARE or memory_queue(facts) < _MOSTLY_QUEUED:
            return None
        return found(
            self,
            facts,
            split.prepare,
            sentence=f"{percent(split.prepare)} of the time the accelerator waits while the loader "
            "workers take turns at a lock: one works at a time.",
            evidence=[
                *fact(lambda v: f"{percent(v)} of fetching is at a lock", facts.input.lock_share),
                *fact(lambda v: f"{percent(v)} of fetching is on a core", facts.input.cpu_share),
                *line_fact(facts.fetch_lines, "the fetchers' stack samples"),
            ],
            remedies=[
                Remedy(
                    setting="make what the lock guards in each worker (worker_init_fn, or at its "
                    "first use) instead of once for all",
                    why="workers then need no lock against one another; more workers only make the "
                    "queue longer",
                    applicability="display",
                )
            ],
        )
