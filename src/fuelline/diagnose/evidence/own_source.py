"""What would help a source of batches that is the job's own Python: a generator, threads, a pool.

The rules are those of every source; the settings are not, because there are none but what somebody
wrote.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.diagnose.rule import count_workers, gain_of_workers, workers_now
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.readings import value_of
from fuelline.schema.run.recording import PYTHON_SOURCE
from fuelline.schema.worker_count import MOST_STRETCH

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.run.recording import LoaderFacts

_ORDER = "Pool.imap and Executor.map keep the order; each process draws random numbers of its own"


def is_own_source(loader: LoaderFacts | None) -> bool:
    """Whether the job's own Python feeds the steps."""
    return loader is not None and loader.framework == PYTHON_SOURCE


def name_own_crew(loader: LoaderFacts) -> str:
    """Who prepares batches."""
    members = loader.num_workers or 0
    if not members:
        return "the training process itself"
    kind = "process" if loader.context == "processes" else "thread"
    if members == 1:
        return f"one background {kind} of yours"
    return f"{members} background {kind}{'es' if kind == 'process' else 's'} of yours"


def more_processes(facts: Facts) -> Remedy:
    """Python runs one thread of a process at a time: what computes needs processes."""
    allowed = math.floor(value_of(facts.cores.allowed) or 1.0)
    best = max(1, min(count_workers(facts), max(allowed, workers_now(facts) + 1)))
    return Remedy(
        setting=f"prepare batches in {_count(best)} ahead of the loop: "
        f"multiprocessing.Pool({best}).imap(make_batch, ...), or a DataLoader with "
        f"num_workers={best}",
        why=f"batches are then made while the model computes; the job may use {_cores(allowed)}",
        applicability="display",
        risk=_ORDER,
        cost="work on the source; each process has memory of its own",
        at_most_speedup=gain_of_workers(facts.loader, best),
    )


def more_threads(facts: Facts) -> Remedy:
    """Threads are enough for what waits."""
    now = workers_now(facts)
    best = max(now + 1, min(count_workers(facts), MOST_STRETCH * max(1, now)))
    return Remedy(
        setting=f"fetch with {best} threads ahead of the loop: "
        f"concurrent.futures.ThreadPoolExecutor({best}).map(fetch, ...), or a DataLoader with "
        f"num_workers={best}",
        why="each request waits for an answer, so more requests at once bring more data; threads "
        "that wait need no core",
        applicability="display",
        risk=_ORDER,
        cost="work on the source",
        at_most_speedup=gain_of_workers(facts.loader, best),
    )


def own_lock() -> Remedy:
    """For threads that take turns at the interpreter."""
    return Remedy(
        setting="prepare batches in processes (multiprocessing.Pool, ProcessPoolExecutor) instead "
        "of threads, or with functions that release the interpreter's lock (numpy, Pillow)",
        why="Python runs one thread of a process at a time, so more threads only make the queue "
        "longer",
        applicability="display",
        risk=_ORDER,
        cost="work on the source; each process has memory of its own",
    )


def _count(processes: int) -> str:
    return "a process" if processes == 1 else f"{processes} processes"


def _cores(allowed: int) -> str:
    return "1 core" if allowed == 1 else f"{allowed} cores"
