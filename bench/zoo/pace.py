"""How fast the cores are, so that the device of a case can be as fast as they are.

What keeps a device waiting is set in milliseconds, bytes per second or shares of a core in some
cases; in others it is work of the cores, and half as much of it on cores twice as fast. There the
device must be twice as fast too, or nothing is planted. The measure is the same for all cases:
three kinds of work in CPU time, in which neighbours on the machine do not count.
"""

from __future__ import annotations

import functools
import math
import time
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

CHOSEN_ON_MS = {"interpreter": 0.215, "bytes": 3.3, "numbers": 0.4}
"""What each work took on the cores that the cases were sized on: three times what it takes on an
AMD EPYC of 2026-11-19, by the rates of one worker in four of these cases on both."""
TRIES = 7
TEXT = "the cores are as fast as they are " * 60
PACKED = zlib.compress(np.random.default_rng(0).integers(0, 16, 1 << 18, np.uint8).tobytes())
WAVES = np.random.default_rng(0).normal(size=(64, 1024))


def interpreter() -> None:
    """A loop in Python, one character at a time."""
    value = 0
    for char in TEXT:
        value = (value * 31 + ord(char)) % 4096


def decode() -> None:
    """Bytes that depend on those before them."""
    zlib.decompress(PACKED)


def numbers() -> None:
    """Spectra of a few waves."""
    np.log1p(np.abs(np.fft.rfft(WAVES, axis=1)) ** 2)


WORKS: dict[str, Callable[[], None]] = {
    "interpreter": interpreter,
    "bytes": decode,
    "numbers": numbers,
}


@functools.cache
def core_time() -> float:
    """Time that these cores take for what took 1 on those that the cases were sized on.

    Measured once in a process: what is compared with each other has the same device.
    """
    ratios = [took_ms(work) / CHOSEN_ON_MS[name] for name, work in WORKS.items()]
    return math.prod(ratios) ** (1 / len(ratios))


def took_ms(work: Callable[[], None]) -> float:
    """CPU time of a work that is repeated for ten milliseconds: the least of some tries."""
    tries = []
    for _ in range(TRIES):
        start_s, times = time.thread_time(), 0
        while time.thread_time() < start_s + 0.01:
            work()
            times += 1
        tries.append((time.thread_time() - start_s) / times)
    return min(tries) * 1e3
