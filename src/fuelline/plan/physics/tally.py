"""Seconds of a step, a token or a request by what they are spent on; the parts sum to the whole.

A plain accumulator with a slot a term, because a search fills a hundred thousand of them. `TERMS`
says the name, the limit and the doubt of every slot: what `--explain` shows is this table, so a
slot that is missing there would be a time that nobody explains.
"""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from fuelline.schema.plan.estimates import Term, TermLimit


class _Row(NamedTuple):
    """How one slot is described."""

    slot: str
    name: str
    limit: TermLimit
    doubt_frac: float
    """One standard deviation; of slots that read or multiply, a multiple of the chip's doubt."""
    of_chip: bool = False


TERMS = (
    _Row("weights", "read weights", "memory bandwidth", 1.0, of_chip=True),
    _Row("math", "matrix math", "math", 1.5, of_chip=True),
    _Row("cache", "read cache", "memory bandwidth", 1.5, of_chip=True),
    _Row("attention_math", "attention math", "math", 2.0, of_chip=True),
    _Row("moved", "move activations", "memory bandwidth", 2.0, of_chip=True),
    _Row("launch", "launch kernels", "launch", 0.35),
    _Row("exchange", "exchange between chips", "interconnect", 0.35),
    _Row("scatter", "all-to-all of experts", "interconnect", 0.35),
    _Row("uneven", "fullest expert chip", "imbalance", 0.5),
    _Row("bus", "weights from the host", "host bus", 0.25),
    _Row("host", "host between steps", "host", 0.5),
    _Row("stall", "prompts elsewhere", "lockstep", 0.35),
    _Row("front", "before the engine", "host", 0.5),
    _Row("queue", "wait for a step", "queue", 0.5),
)
_SLOTS = tuple(row.slot for row in TERMS)
_all_of = attrgetter(*_SLOTS)


class Tally:
    """Seconds by term."""

    __slots__ = _SLOTS

    def __init__(self) -> None:
        self.weights = self.math = self.cache = self.attention_math = self.moved = 0.0
        self.launch = self.exchange = self.scatter = self.uneven = self.bus = self.host = 0.0
        self.stall = self.front = self.queue = 0.0

    @property
    def seconds(self) -> float:
        """The whole."""
        return float(sum(_all_of(self)))

    @property
    def between_chips(self) -> float:
        """Everything that a single chip would not spend."""
        return self.exchange + self.scatter + self.uneven

    def terms(self, doubt: float = 0.08) -> tuple[Term, ...]:
        """With names, limits and doubts; nothing that is zero. `doubt` is the chip's own."""
        return tuple(
            Term(
                name=row.name,
                seconds=seconds,
                limit=row.limit,
                doubt_frac=row.doubt_frac * (doubt if row.of_chip else 1.0),
            )
            for row, seconds in zip(TERMS, _all_of(self), strict=True)
            if seconds > 0
        )

    def scaled(self, factor: float) -> Tally:
        """Every part times this."""
        other = Tally()
        for slot, seconds in zip(_SLOTS, _all_of(self), strict=True):
            if seconds:
                setattr(other, slot, seconds * factor)
        return other

    def plus(self, more: Tally, factor: float = 1.0) -> Tally:
        """The sum, part by part."""
        other = self.scaled(1.0)
        for slot, seconds in zip(_SLOTS, _all_of(more), strict=True):
            if seconds:
                setattr(other, slot, getattr(other, slot) + factor * seconds)
        return other
