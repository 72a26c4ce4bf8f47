"""Counting the steps of a loop whose batches no counter of the kernel counts.

Most loops keep count themselves. `py-spy dump --locals` shows the variables of the functions that
take batches and train; of these, integers with one of a few names are kept for as long as it takes
to subtract the last value, and nothing else is. Where there is none, turns of waiting and working
in the stack samples are counted, and those that fall between two samples are added by probability.
"""

import json
import math
import os
import subprocess
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from fuelline.record.attach.estimate import PartSpan
from fuelline.record.attach.frames import PAUSES
from fuelline.schema.memory import make_memory

NAMES = frozenset({
    "step", "steps", "global_step", "step_num", "n_step", "n_steps", "num_steps",
    "i", "it", "itr", "iter_num", "iteration", "iterations", "n_iter", "iters", "idx", "k", "n",
    "batch_idx", "batch_id", "batch_i", "batch_num", "bi", "num_batches",
})  # fmt: skip
"""Variables that count batches or steps, in published training loops."""
FIRST_S, EVERY_S = 2, 5
FEW_READINGS = 4
"""From which on the counters are known, if there are any."""
_OVERDUE_S = 5.0
_MOST_VALUE = 1 << 48
_ALIKE = 1.5
"""Two rates of one counter that differ by more: it counts something else."""
_NEARLY = 0.8
_MOST_BATCHES = 64
_UNEVEN = 0.05
"""The end of an epoch makes a last, shorter step of several batches."""
_FEW_TURNS = 4
_MOST_UNSEEN = 10
"""Times as many steps as turns: beyond that the samples are too far apart for the steps."""
_HALVINGS = 30


class Counted(NamedTuple):
    """The value of a variable at one moment."""

    at_ns: int
    value: int


Variable = tuple[str, str, str]
"""Function, file and name."""


class LoopCounter:
    """Integers of one process's main thread, read now and then by a process of its own."""

    def __init__(self, binary: str, pid: int) -> None:
        self._binary, self._pid = binary, pid
        self._process: subprocess.Popen[bytes] | None = None
        self._output_fd = -1
        self._since_ns = self._due_ns = 0
        self.values: dict[Variable, list[Counted]] = {}
        self.readings = 0

    @property
    def helper_pid(self) -> int | None:
        """Of the py-spy that runs now."""
        return None if self._process is None else self._process.pid

    def take_turn(self, now_ns: int, *, functions: Iterable[tuple[str, str]]) -> None:
        """Take what the last reading has, or begin one; `functions` are those that may count."""
        if self._process is not None:
            if self._process.poll() is None:
                if now_ns - self._since_ns > _OVERDUE_S * 1e9:
                    self._process.kill()
                return
            self._process = None
            self.readings += 1
            with os.fdopen(self._output_fd, "rb") as file:
                file.seek(0)
                self._keep(file.read(), frozenset(functions))
        elif now_ns >= self._due_ns:
            every_s = FIRST_S if self.readings < FEW_READINGS else EVERY_S
            self._due_ns = now_ns + every_s * 1_000_000_000
            self._output_fd = make_memory("locals")
            self._since_ns = time.monotonic_ns()
            self._process = subprocess.Popen(
                [self._binary, "dump", "--nonblocking", "--locals", "--json", "--full-filenames",
                 "--pid", str(self._pid)],
                stdin=subprocess.DEVNULL,
                stdout=self._output_fd,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip

    def _keep(self, output: bytes, functions: frozenset[tuple[str, str]]) -> None:
        try:
            threads = json.loads(output) if output else []
            found = dict(_find_integers(threads, self._pid, functions))
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # torn: the next one will do
        for variable, value in found.items():
            self.values.setdefault(variable, []).append(Counted(self._since_ns, value))

    def stop(self) -> None:
        """End what is being read."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            os.close(self._output_fd)
            self._process = None


def _find_integers(
    threads: list[dict[str, Any]], pid: int, functions: frozenset[tuple[str, str]]
) -> Iterable[tuple[Variable, int]]:
    """Of the main thread's frames that belong to these functions, innermost first."""
    for thread in threads:
        if thread.get("os_thread_id") != pid and thread.get("thread_name") != "MainThread":
            continue
        for frame in thread["frames"]:
            place = frame["name"], frame["filename"]
            for local in (frame.get("locals") or ()) if place in functions else ():
                text = str(local.get("repr", ""))
                if local["name"] in NAMES and text.isdecimal() and int(text) < _MOST_VALUE:
                    yield (*place, local["name"]), int(text)


class LoopPace(NamedTuple):
    """How many batches there were up to each of some moments."""

    moments: tuple[int, ...]
    counts: tuple[float, ...]

    @property
    def per_s(self) -> float:
        """On average, pauses included."""
        return (self.counts[-1] - self.counts[0]) / ((self.moments[-1] - self.moments[0]) / 1e9)

    def batches_until(self, at_ns: int) -> float:
        """Batches up to a moment; before the first and after the last at their own rate."""
        high = min(max(bisect_left(self.moments, at_ns), 1), len(self.moments) - 1)
        before, after = self.moments[high - 1], self.moments[high]
        frac = (at_ns - before) / (after - before)
        return self.counts[high - 1] + frac * (self.counts[high] - self.counts[high - 1])


def find_pace(
    values: Mapping[Variable, list[Counted]], least_per_s: float, likely_per_s: float
) -> LoopPace | None:
    """The pace of the variable that counts the loop's turns, if one does.

    Of several the one that comes closest to `likely_per_s`: the others count samples, or steps of
    several batches. None may be slower than the turns that were seen (`least_per_s`).
    """
    paces = [pace for pace in map(_pace_of, values.values()) if pace is not None]
    able = [pace for pace in paces if pace.per_s >= _NEARLY * least_per_s]
    if not likely_per_s:
        return min(able, key=lambda pace: pace.per_s, default=None)
    return min(able, key=lambda pace: abs(math.log(pace.per_s / likely_per_s)), default=None)


def batches_per_step(values: Mapping[Variable, list[Counted]], batches_per_s: float) -> int:
    """How many batches a turn of the loop takes, by a variable that grows so many times slower.

    One where there is none: a loop over two loaders, or one that gathers gradients, has one as a
    rule.
    """
    pace = find_pace(values, batches_per_s / _MOST_BATCHES, batches_per_s)
    if pace is None or batches_per_s <= 0:
        return 1
    ratio = batches_per_s / pace.per_s
    whole = round(ratio)
    is_whole = 1 <= whole <= _MOST_BATCHES and abs(ratio - whole) <= min(0.25, _UNEVEN * ratio)
    return whole if is_whole else 1


def _pace_of(counted: list[Counted]) -> LoopPace | None:
    steps = [(new.at_ns - old.at_ns, new.value - old.value) for old, new in pairwise(counted)]
    rates = [grown / lasted_ns for lasted_ns, grown in steps if grown > 0]
    if len(rates) < 2 or len(rates) < 0.6 * len(steps):
        return None
    usual = median(rates)
    alike = sum(usual / _ALIKE <= rate <= usual * _ALIKE for rate in rates)
    if alike < 0.7 * len(rates):
        return None
    counts = [0.0]
    for lasted_ns, grown in steps:
        # It stood still in a pause; it has begun anew where it is smaller.
        counts.append(counts[-1] + (grown if grown >= 0 else usual * lasted_ns))
    return LoopPace(tuple(each.at_ns for each in counted), tuple(counts))


def is_clear(span: PartSpan) -> bool:
    """Whether it belongs to steps, not to a pause between them."""
    return span.part not in PAUSES


class SeenTurns:
    """Steps by the turns from waiting to working that samples at random moments saw.

    A wait of `a` seconds in a step of `a + b` is followed by work in two samples with the
    probability (1 - exp(-ra)) (1 - exp(-rb)) / (1 - exp(-r(a+b))), at `r` samples a second.
    """

    def __init__(self) -> None:
        self._turns = 0
        self._clear_s = self._waited_s = 0.0

    def add(self, spans: list[PartSpan]) -> None:
        """What the loop was seen in, from where the last spans ended."""
        clear = [each for each in spans if is_clear(each)]
        self._clear_s += sum(each.end_ns - each.start_ns for each in clear) / 1e9
        waits = (each for each in clear if each.part == "input")
        self._waited_s += sum(each.end_ns - each.start_ns for each in waits) / 1e9
        self._turns += sum(
            one.part == "input" and other.part != "input" for one, other in pairwise(spans)
        )

    def seen_per_s(self) -> float:
        """SeenTurns that were seen in a second: there were no fewer steps."""
        return self._turns / self._clear_s if self._clear_s else 0.0

    def steps_per_s(self, samples_per_s: float) -> float:
        """Steps in a second without a pause."""
        clear_s, turns = self._clear_s, self._turns
        if turns < _FEW_TURNS or not 0 < self._waited_s < clear_s:
            return self.seen_per_s()
        share = self._waited_s / clear_s

        def seen(steps: float) -> float:
            step = samples_per_s * clear_s / steps
            longest = math.expm1(-(1 - share) * step) / math.expm1(-step)
            return -steps * math.expm1(-share * step) * longest

        low, high = float(turns), float(turns) * _MOST_UNSEEN
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if seen(middle) < turns else (low, middle)
        return low / clear_s
