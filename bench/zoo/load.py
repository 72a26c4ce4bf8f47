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

LOADS = ("none", "one-core", "io")
"""In this order, one for each repetition."""


@contextlib.contextmanager
def background(load: str) -> Iterator[None]:
    """Nothing; a polite process that wants half a core; or one that reads 5 MB/s elsewhere."""
    with contextlib.ExitStack() as stack:
        if load == "one-core":
            stack.enter_context(processes.python(["-c", HALF_A_CORE]))
        elif load == "io":
            file = make_data.make("packed", DATA / "packed", COUNTS["packed"]) / "records.bin"
            reader = ["-m", "bench.zoo.faults.reader", str(file), "1", str(1 << 18), "20"]
            stack.enter_context(processes.python(reader))
        yield
