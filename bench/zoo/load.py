"""Other load on the machine while the zoo runs: a verdict must not depend on it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from examples import make_data

from bench.zoo.case import COUNTS, DATA
from bench.zoo.faults import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

HALF_A_CORE = """
import os, time
os.nice(19)
while True:
    until = time.monotonic() + 0.05
    while time.monotonic() < until: pass
    time.sleep(0.05)
"""

A_CORE_IN_TURNS = """
import time
while True:
    until = time.monotonic() + 3
    while time.monotonic() < until: pass
    time.sleep(1)
"""

LOADS = ("none", "one-core", "io")
"""In this order, one for each repetition."""
NEIGHBOUR = "neighbour"
"""For what is to hold beside others who want as much; a fault of its own to a verdict."""


@contextlib.contextmanager
def background(load: str) -> Iterator[None]:
    """Nothing, or one more process.

    one-core: polite, wants half a core; io: reads 5 MB/s elsewhere; neighbour: an equal that wants
    a whole core for three of four seconds.
    """
    with contextlib.ExitStack() as stack:
        if load == "one-core":
            stack.enter_context(processes.python(["-c", HALF_A_CORE]))
        elif load == NEIGHBOUR:
            stack.enter_context(processes.python(["-c", A_CORE_IN_TURNS]))
        elif load == "io":
            file = make_data.make("packed", DATA / "packed", COUNTS["packed"]) / "records.bin"
            reader = ["-m", "bench.zoo.faults.reader", str(file), "1", str(1 << 18), "20"]
            stack.enter_context(processes.python(reader))
        yield
