"""Records of the trainer thread that are still to be written, and the quick calls that leave them.

A training step empties the caches, and then it is not the work that a hook does that costs, but
each object and each line of bytecode that must be fetched from memory again: ten times as much as
in a loop. So where the package was built with its compiled part (hatch_build.py says where), that
does what these two classes do; `fuelline doctor` says which it is. FUELLINE_NO_HELD=1 leaves it
out, to compare.

A record is eight words here: start, length, five of its own, and `wire.tail` with the thread.
"""

import importlib
import os
from _thread import get_ident
from array import array
from time import monotonic_ns
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LEFT_OUT", "PLAIN", "Held", "Lap", "is_compiled"]

LEFT_OUT = "FUELLINE_NO_HELD"
"""Environment variable that keeps to the classes here."""
_LAYOUT = 2
"""What _held.c and this file say to each other; another build than this is not used."""


class Held:
    """What all quick hooks of a process share."""

    notice: "Callable[[str, dict[str, int]], None] | None" = None
    """Compiled only: a callback of the garbage collector that holds a record of long ones."""

    __slots__ = ("_phase", "_words", "born_ns", "fetched", "tid", "trainer", "write_at")

    trainer: int
    """The thread whose records may be held and whose phase is published; 0: none yet."""
    tid: int
    """The same thread as the kernel knows it."""
    write_at: int
    """A record that ends at or after this is the last to be held; 0: records are not held."""
    fetched: int
    """Indices that the trainer's latest quick fetch was given; 0: not known."""

    born_ns: int
    """When this process was forked, 0 if it was not; what began before is its parent's."""

    def __init__(self) -> None:
        self.reset()
        self.born_ns = 0

    def reset(self) -> None:
        """Begin anew, in a forked child."""
        self.trainer = self.tid = self.write_at = self.fetched = 0
        # Integers in a row: a tuple that is kept would be work for the garbage collector.
        self._words: list[int] = []
        self._phase = memoryview(bytearray(1))
        self.born_ns = monotonic_ns()

    def show(self, phase: memoryview) -> None:
        """From now on the phase is the first byte of this."""
        self._phase = phase

    @property
    def phase(self) -> int:
        """`wire.Phase` of the trainer."""
        return self._phase[0]

    @phase.setter
    def phase(self, phase: int) -> None:
        self._phase[0] = phase

    def watch_collections(self, least_ns: int, tail: int) -> None:
        """Tell `notice` from which length on a collection has a record, and how that ends."""
        raise NotImplementedError

    def keep(  # noqa: PLR0917 - the fields of a record
        self, start_ns: int, end_ns: int, a: int, b: int, c: int, d: int, e: int, tail: int
    ) -> bool:
        """Hold a record of the trainer; whether it is time to write."""
        return self.keep_of(self.tid, start_ns, end_ns, a, b, c, d, e, tail)

    def keep_of(  # noqa: PLR0917 - the fields of a record
        self,
        tid: int,
        start_ns: int,
        end_ns: int,
        a: int,
        b: int,
        c: int,
        d: int,
        e: int,
        tail: int,
    ) -> bool:
        """The same for a thread that was the trainer."""
        if start_ns < self.born_ns:
            return False
        self._words.extend((start_ns, end_ns - start_ns, a, b, c, d, e, tail | tid))
        return end_ns >= self.write_at

    def mark(self, number: int, tail: int) -> bool | None:
        """Hold a record of this moment; whether it is time to write. None: not the trainer."""
        if get_ident() != self.trainer:
            return None
        now_ns = monotonic_ns()
        return self.keep(now_ns, now_ns, number, 0, 0, 0, 0, tail)

    def take(self) -> bytes:
        """All that is held, which is not held any more."""
        fresh: list[int] = []
        words, self._words = self._words, fresh  # nothing here may start a garbage collection
        return array("q", words).tobytes()


class Lap:
    """The quick calls of one hook."""

    __slots__ = ("_held", "_tid", "is_inside", "quick_calls")

    def __init__(self, held: Held) -> None:
        self._held = held
        self._tid = 0
        self.quick_calls = 0
        """How many more calls may be quick; 0 also while the hook is off."""
        self.is_inside = False
        """Whether the trainer is in a call, quick or not; those within it belong to it."""

    def _may_be_quick(self) -> bool:
        return self.quick_calls > 0 and not self.is_inside and get_ident() == self._held.trainer

    def start(self, phase: int | None) -> int:
        """The time at which a quick call begins, and the phase with it; 0: it may not be quick."""
        if not self._may_be_quick():
            return 0
        if phase is not None:
            self._held.phase = phase
        self.quick_calls -= 1
        self.is_inside = True
        self._tid = self._held.tid
        return monotonic_ns()

    def stop(  # noqa: PLR0917 - the fields of a record
        self, phase: int | None, start_ns: int, a: int, b: int, c: int, d: int, e: int, tail: int
    ) -> bool:
        """End the call that was started then and hold its record; whether it is time to write."""
        held, end_ns = self._held, monotonic_ns()
        if self._tid == held.tid:  # else another thread has become the trainer meanwhile
            self.is_inside = False
            if phase is not None:
                held.phase = phase
        return held.keep_of(self._tid, start_ns, end_ns, a, b, c, d, e, tail)

    def skip(self) -> bool:
        """Whether this call may be quick and leave no record: while records are held.

        Whoever is told so sets `is_inside` back.
        """
        if not self._held.write_at or not self._may_be_quick():
            return False
        self.quick_calls -= 1
        self.is_inside = True
        return True


PLAIN = Held, Lap
"""The classes above."""

if not TYPE_CHECKING and not os.environ.get(LEFT_OUT):
    try:
        _compiled = importlib.import_module("fuelline.record._held")
    except ImportError:
        _compiled = None
    if getattr(_compiled, "LAYOUT", None) == _LAYOUT:
        Held, Lap = _compiled.Held, _compiled.Lap


def is_compiled() -> bool:
    """Whether the others are in use."""
    return Held is not PLAIN[0]
