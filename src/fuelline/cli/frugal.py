"""How polars is to use threads and memory; this must be set before it is loaded.

Traces are read a piece at a time, so what counts is how soon memory is used again. What was freed
polars' allocator (jemalloc) keeps for half a second, apart for each thread, which adds 40 MB to the
165 that a trace of 324 MB needs; a tenth of a second and one place for all costs no time that could
be measured (bench/trace_import.py). What the user has set stays.
"""

from __future__ import annotations

import os

_ALLOCATION = "narenas:1,dirty_decay_ms:100,muzzy_decay_ms:0,retain:false"
"""Without retain:false the addresses of freed memory are kept, and count as data to the kernel.
Names as in http://jemalloc.net/jemalloc.3.html#tuning; where polars has another allocator, nobody
reads them."""
_GLIBC = {-3: 1024 * 1024, -8: 1}
"""M_MMAP_THRESHOLD and M_ARENA_MAX of mallopt(3): by itself the threshold grows to 32 MB, and what
is smaller stays with the process when it was freed, 90 MB of a run that was just compacted. It
stays above the pieces that a trace is read in: at 128 kB each of them was mapped anew, which made
an import a third slower (bench/before_after.py)."""
_MOST_THREADS = 4


def save_memory() -> None:
    """Give freed memory back soon, that of C libraries as well."""
    os.environ.setdefault("_RJEM_MALLOC_CONF", _ALLOCATION)
    import ctypes  # noqa: PLC0415 - a job that is started need not wait for it

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc alone
    if mallopt is not None:
        for parameter, value in _GLIBC.items():
            mallopt(parameter, value)


def use_few_threads() -> None:
    """As many as help: each keeps memory of its own, and a machine may have hundreds of cores."""
    cores = len(os.sched_getaffinity(0))
    os.environ.setdefault("POLARS_MAX_THREADS", str(min(cores, _MOST_THREADS)))


def save_threads() -> None:
    """One thread: for processes that run in parallel, one per core.

    More threads in each would only wait for each other, which costs a ninth of the processor time
    (bench/trace_import.py).
    """
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
