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
    joined = sorted(mark for some in _run_threads(acts, seconds, time.monotonic) for mark in some)
    return _judge(joined, seconds, unit, origin)


def time_rate_of_cores(
    acts: Sequence[Callable[[], float | None]], seconds: float, unit: str, origin: str
) -> Signal:
    """The same for each second that a thread has a core: others may want the cores meanwhile."""
    each = [
        _judge(marks, seconds, unit, origin)
        for marks in _run_threads(acts, seconds, time.thread_time)
    ]
    known = [signal for signal in each if isinstance(signal, Reading)]
    if len(known) < len(each):
        return next(signal for signal in each if isinstance(signal, Missing))
    lows, highs = [one.low for one in known], [one.high for one in known]
    is_sure = None not in lows
    return Reading(
        value=sum(one.value for one in known),
        unit=unit,
        low=sum(low or 0.0 for low in lows) if is_sure else None,
        high=sum(high or 0.0 for high in highs) if is_sure else None,
        level=95 if is_sure else None,
        count=sum(one.count or 0 for one in known),
        origin=origin,
    )


def _run_threads(
    acts: Sequence[Callable[[], float | None]], seconds: float, clock: Callable[[], float]
) -> list[list[tuple[float, float]]]:
    """The marks of each thread, by a clock of its own if that is one."""
    marks: list[list[tuple[float, float]]] = [[] for _ in acts]
    problems: list[OSError] = []

    def work(number: int) -> None:
        try:
            marks[number] = _run(acts[number], seconds, clock)
        except OSError as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return marks


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


def _run(
    act: Callable[[], float | None], seconds: float, clock: Callable[[], float] = time.monotonic
) -> list[tuple[float, float]]:
    """Pairs of the end of each call, from the start, and its amount."""
    until, start = time.monotonic() + seconds, clock()
    marks: list[tuple[float, float]] = []
    while not marks or time.monotonic() < until:
        amount = act()
        if amount is None:
            break
        marks.append((clock() - start, amount))
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
