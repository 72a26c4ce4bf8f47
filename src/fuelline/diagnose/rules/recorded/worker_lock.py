"""PR205 worker-lock: loader workers take turns at a lock in memory, so only one works at a time.

What: while training waits, the fetching processes wait at a lock (multiprocessing.Lock, a
semaphore) that another of them holds.
Threads of tf.data that call Python (tf.py_function) take turns at its interpreter's lock likewise.
Why: a data set that guards something which several processes cannot share safely makes all workers
together as fast as one. More of them make the queue longer.
Not the same as: locks on files (IN106), which have another system call; threads that wait for other
threads of the same worker, which is seen from what those do.
Threshold: the queue, including whoever holds the lock, takes at least half of the fetch time; below
that most of the work is outside the lock, and other rules speak for it.
Fix: give each worker its own copy of what the lock guards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.own_source import is_own_source, own_lock
from fuelline.diagnose.evidence.split import memory_queue, split_input
from fuelline.diagnose.evidence.tf_data import has_threads, leave_python, node_evidence
from fuelline.diagnose.rule import FETCH_SAMPLES, LISTED_SHARE, fact, found, line_fact
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
            sentence=f"{percent(split.prepare)} of training time is spent waiting while "
            f"{_turns(facts)}: only one works at a time.",
            evidence=[
                *fact(
                    lambda v: f"{percent(v)} of fetch time is spent waiting for a lock",
                    facts.input.lock_share,
                ),
                *fact(
                    lambda v: f"{percent(v)} of fetch time is spent computing",
                    facts.input.cpu_share,
                ),
                *line_fact(facts.fetch_lines, FETCH_SAMPLES),
                *node_evidence(facts),
            ],
            remedies=[
                leave_python(facts)
                if has_threads(facts.loader)
                else own_lock()
                if is_own_source(facts.loader)
                else Remedy(
                    setting="give each worker its own copy of what the lock guards (create it in "
                    "worker_init_fn, or on first use)",
                    why="workers then need no lock against each other; more workers only make the "
                    "queue longer",
                    applicability="display",
                )
            ],
        )


def _turns(facts: Facts) -> str:
    if has_threads(facts.loader):
        return "calls of your Python code take turns at the interpreter's lock (GIL)"
    if is_own_source(facts.loader):
        return "the threads that prepare batches take turns at a lock, such as the interpreter's"
    return "the loader workers take turns at a lock"
