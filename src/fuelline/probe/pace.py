"""How often something can be done in a second, alone or by several threads at once.

An action does the thing once and says how much that was; None when there is nothing left to do.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.schema.student import find_t

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BLOCKS = 10


def time_rate(act: Callable[[], float | None], seconds: float, unit: str, origin: str) -> Signal:
    """Amount a second, with an interval over ten blocks of the time."""
    return _judge(_run(act, seconds), seconds, unit, origin)


def time_rate_of_threads(
    acts: Sequence[Callable[[], float | None]], seconds: float, unit: str, origin: str
) -> Signal:
    """The same by threads that run at once; for calls that release the interpreter's lock."""
    marks: list[list[tuple[float, float]]] = [[] for _ in acts]
    problems: list[OSError] = []

    def work(number: int) -> None:
        try:
            marks[number] = _run(acts[number], seconds)
        except OSError as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    joined = sorted(mark for some in marks for mark in some)
    return _judge(joined, seconds, unit, origin)


def _judge(marks: list[tuple[float, float]], seconds: float, unit: str, origin: str) -> Signal:
    total = sum(amount for _, amount in marks)
    elapsed = marks[-1][0] if marks else 0.0
    if total <= 0 or elapsed <= 0:
        return Missing(reason=f"{origin}: nothing could be done in {seconds:g} s")
    half = _half_width(marks, elapsed)
    value = total / elapsed
    return Reading(
        value=value,
        unit=unit,
        low=None if half is None else max(0.0, value - half),
        high=None if half is None else value + half,
        level=None if half is None else 95,
        count=len(marks),
        origin=origin,
    )


def _run(act: Callable[[], float | None], seconds: float) -> list[tuple[float, float]]:
    """Pairs of the end of each call, from the start, and its amount."""
    start = time.monotonic()
    marks: list[tuple[float, float]] = []
    while not marks or marks[-1][0] < seconds:
        amount = act()
        if amount is None:
            break
        marks.append((time.monotonic() - start, amount))
    return marks


def _half_width(marks: list[tuple[float, float]], elapsed: float) -> float | None:
    if len(marks) < 2 * BLOCKS:
        return None
    sums = [0.0] * BLOCKS
    for at, amount in marks:
        sums[min(BLOCKS - 1, int(at / elapsed * BLOCKS))] += amount
    rates = [each / (elapsed / BLOCKS) for each in sums]
    mean = sum(rates) / BLOCKS
    spread = math.sqrt(sum((rate - mean) ** 2 for rate in rates) / (BLOCKS - 1))
    return find_t(BLOCKS - 1) * spread / math.sqrt(BLOCKS)
