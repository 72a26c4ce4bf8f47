"""What would help a grain pipeline, in its own words. The rules are those of every source.

Threads read and transform within one process, and take turns at Python; workers are processes that
are spawned. Both give batches in the same order.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.diagnose.rule import count_workers, gain_of_workers, workers_now
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.readings import value_of
from fuelline.schema.worker_count import MOST_STRETCH

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.run.recording import LoaderFacts

GRAIN = "grain"
DEFAULT_THREADS = 16


def is_grain(loader: LoaderFacts | None) -> bool:
    """Whether a grain pipeline feeds the steps."""
    return loader is not None and loader.framework == GRAIN


def more_grain_workers(facts: Facts) -> Remedy:
    """What computes needs processes, as far as there are cores."""
    allowed = math.floor(value_of(facts.cores.allowed) or 1.0)
    now = _processes(facts)
    best = max(now + 1, min(count_workers(facts), allowed))
    return Remedy(
        setting=f"dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers={best}, "
        f"per_worker_buffer_size=2)); of a DataLoader worker_count={best}, worker_buffer_size=2",
        why=f"threads of one process take turns at Python; {best} processes prepare batches at "
        "the same time",
        applicability="unsafe",
        risk="workers draw random numbers of their own where a transform takes them from numpy or "
        "random; those of grain's RandomMap stay the same",
        cost=f"{best - now} more processes with their own memory, which start for seconds",
        at_most_speedup=gain_of_workers(facts.loader, best) if now else float(best + 1),
    )


def more_grain_threads(facts: Facts) -> Remedy:
    """Waiting threads need no core."""
    loader = facts.loader
    now = (loader.threads if loader is not None else None) or 0
    if not now and _processes(facts):
        return more_grain_workers(facts)
    best = max(now + 1, min(count_workers(facts), MOST_STRETCH * max(1, now)), DEFAULT_THREADS)
    return Remedy(
        setting=f"grain.ReadOptions(num_threads={best}, prefetch_buffer_size={4 * best}) in "
        "to_iter_dataset() or the DataLoader",
        why="each request waits for a round trip, so more requests at once bring more data; "
        "threads that wait need no core",
        applicability="safe",
        cost=f"{best - now} more threads, and the samples that they hold",
        at_most_speedup=gain_of_workers(facts.loader, max(best, workers_now(facts) + 1)),
    )


def _processes(facts: Facts) -> int:
    loader = facts.loader
    return workers_now(facts) if loader is not None and loader.context == "processes" else 0
