"""Small numbers for the job's loaders and optimizers, which are neither touched nor kept alive."""

import itertools
import weakref
from typing import Any

__all__ = ["Identities"]


class Identities:
    """Numbers objects from 1 in the order in which they are first seen."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        """By `id`; whoever must be quick looks here."""
        self._refs: dict[int, weakref.ref[Any]] = {}
        self._fresh = itertools.count(1).__next__

    def find(self, thing: object) -> int | None:
        """The object's number, or None if it has none yet."""
        return self.numbers.get(id(thing))

    def add(self, thing: object) -> int:
        """Give the object the next number; objects may compare equal or be unhashable."""
        key, number = id(thing), self._fresh()
        # An id is free for another object only after this callback has run.
        self._refs[key] = weakref.ref(thing, lambda _: self._drop(key))
        self.numbers[key] = number
        return number

    def add_nameless(self) -> int:
        """A number for something that cannot be referred to."""
        return self._fresh()

    def _drop(self, key: int) -> None:
        self.numbers.pop(key, None)
        self._refs.pop(key, None)
