"""What is carried from one piece of a file to the next: names, threads, what was odd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.ingest.kineto.shapes import COUNTERS
from fuelline.ingest.name_book import NameBook
from fuelline.signals.traced.kernels.names import is_communicating

if TYPE_CHECKING:
    from collections.abc import Sequence

_STEP_MARK = "ProfilerStep"
_MOST_DIGITS = 19


class Names(NameBook):
    """Texts to numbers, in the order of appearance."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        """By their numbers."""
        self.steps: dict[int, int] = {}
        """Names of the profiler's own steps to their numbers."""
        self.counted: set[int] = set()
        """Names of operators whose work can be counted."""
        self.special: set[int] = set()
        """These, and operators that kernels may have to be traced back to."""
        self.watched: set[int] = set()
        """All of these, so that most events need one look."""

    def number(self, text: str) -> int:
        """The number of a text that is new or long."""
        found = super().number(text)
        if found == len(self.texts):
            self.texts.append(next(reversed(self.numbers)))  # cut, if it is long
            self._judge(text, found)
        return found

    def _judge(self, text: str, found: int) -> None:
        mark, _, step = text.partition("#")
        if mark == _STEP_MARK and step.isdecimal() and len(step) < _MOST_DIGITS:
            self.steps[found] = int(step)
            self.watched.add(found)
        if text in COUNTERS:
            self.counted.add(found)
        if text in COUNTERS or is_communicating(text):
            self.special.add(found)
            self.watched.add(found)

    def find(self, names: Sequence[str]) -> list[int]:
        """Numbers of these names."""
        known = self.numbers
        try:
            return list(map(known.__getitem__, names))
        except KeyError:
            found = {name: self.number(name) for name in dict.fromkeys(names)}
            return list(map(found.__getitem__, names))


class ScanState:
    """What is carried from one piece to the next."""

    def __init__(self) -> None:
        self.names = Names()
        self.threads: dict[str, int] = {}
        """Threads that have a name instead of a number."""
        self.negative = 0
        """Events that end before they start."""

    def find_thread(self, value: object) -> int:
        """A thread's id; one that has none gets a negative number of its own."""
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            return int(value)
        text = str(value)
        if text.isascii() and text.isdecimal() and len(text) < _MOST_DIGITS:
            return int(text)
        return self.threads.setdefault(text, -1 - len(self.threads))
