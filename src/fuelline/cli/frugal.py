"""How polars is to use threads and memory; it must be told before it is loaded.

Traces are read a piece at a time, so what counts is how soon memory is used again. What was freed
polars' allocator (jemalloc) keeps for half a second, apart for each thread, which adds 40 MB to the
165 that a trace of 324 MB needs; a tenth of a second and one place for all costs no time that could
be measured (bench/trace_import.py). What the user has set stays.
"""

from __future__ import annotations

import os

_ALLOCATION = "narenas:1,dirty_decay_ms:100,muzzy_decay_ms:0"
"""Names as in http://jemalloc.net/jemalloc.3.html#tuning; where polars has another allocator,
nobody reads them."""


def save_memory() -> None:
    """Give freed memory back soon."""
    os.environ.setdefault("_RJEM_MALLOC_CONF", _ALLOCATION)


def save_threads() -> None:
    """One thread: for processes that stand side by side, one a core.

    More threads in each would only wait for each other, which costs a ninth of the processor time
    (bench/trace_import.py).
    """
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
