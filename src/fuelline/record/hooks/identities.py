"""Small numbers for the job's loaders and optimizers, which are neither touched nor kept alive.

Python would tell us when one of them dies, by calling a function of ours. On entering that it runs
the handlers of signals that have arrived, and what a handler raises there is lost: a Ctrl-C that
never ends the job. So the dead stay in the book until it has grown, and an `id` proves nothing.
"""

import itertools
import weakref
from typing import Any

__all__ = ["Identities"]

LEAST_ENTRIES = 64
"""The dead are looked for when there are as many entries, about 16 KiB, and after that at twice as
many as were found alive: then an addition looks at two entries on average."""


class Identities:
    """Numbers objects from 1 in the order in which they are first seen."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[weakref.ref[Any], int]] = {}
        """By `id`; whoever must be quick looks here, and asks the reference whose the number is."""
        self._most_entries = LEAST_ENTRIES
        self._fresh = itertools.count(1).__next__

    def find(self, thing: object) -> int | None:
        """The object's number, or None if it has none yet."""
        entry = self.entries.get(id(thing))
        return entry[1] if entry is not None and entry[0]() is thing else None

    def add(self, thing: object) -> int:
        """Give the object the next number; objects may compare equal or be unhashable."""
        if len(self.entries) >= self._most_entries:
            self._forget_the_dead()
        number = self._fresh()
        self.entries[id(thing)] = weakref.ref(thing), number
        return number

    def add_nameless(self) -> int:
        """A number for something that cannot be referred to."""
        return self._fresh()

    def _forget_the_dead(self) -> None:
        for key, entry in list(self.entries.items()):
            # Another thread may have given the id to an object that lives.
            if entry[0]() is None and self.entries.get(key) is entry:
                self.entries.pop(key, None)
        self._most_entries = max(LEAST_ENTRIES, 2 * len(self.entries))
