"""Whether what a dataset gives depends on the process that it runs in, seen from its worker.

A sample may be made by any worker only if its fetch leaves the process as it found it: the streams
of `torch`, `random` and `numpy.random`, generators that the dataset owns, and the plain numbers
among its attributes. What is watched is compared after a fetch; nothing of the job is called.

Price: 4 us a look (torch's stream; the positions of the others are read from memory). The words
that are read are proved at the start on our own stream, and read the slow way where that
fails.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import random
import sys
from time import monotonic_ns
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CellType

__all__ = ["PurityCheck", "list_values", "owns_generator"]

CHEAP = 400
"""A look may take this fraction of the time of fetches: quick ones are looked at now and then."""
LOOK_NS = 10_000
"""What a look costs at least; with cold caches or a dataset of many parts it costs more."""
LONGEST_SKIP = 100
MOST_OBJECTS = 500
"""Of a dataset that are looked into: its transforms and their lists, not its million samples."""
DEEPEST = 5
MOST_ITEMS = 32
"""Of a container: a list of transforms is shorter, a list of samples need not be searched."""
_HEAD = object.__basicsize__
_WORDS = 3
_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8
"""Py_TPFLAGS: a class that is written in Python has the first and not the second. Others may have a
million items."""


class PurityCheck:
    """Compares the process's random streams and the dataset's numbers from look to look."""

    def __init__(self, dataset: Any, longest_skip: int = LONGEST_SKIP) -> None:
        self._longest_skip = longest_skip
        self._streams: list[Callable[[], Any]] = [_python_stream()]
        self._numpy_known = False
        self._parts = [each for each in _walk(dataset) if list_values(each)]
        self.skip = 0
        """Fetches until the next look."""
        self._price_ns = 0
        self.settle()

    def begin(self) -> None:
        """A fetch begins: what changed before it is not its doing."""
        if not self.skip:
            begun_ns = monotonic_ns()
            self.settle()
            self._price_ns = monotonic_ns() - begun_ns

    def end(self, busy_ns: int) -> bool:
        """A fetch has ended: whether anything changed until now, if it is time for a look.

        Without a `begin` in between, the fetches that were not looked at count as well.
        """
        if self.skip:
            self.skip -= 1
            return False
        begun_ns = monotonic_ns()
        is_changed = self.has_changed()
        price_ns = max(LOOK_NS, self._price_ns + monotonic_ns() - begun_ns)
        self.skip = min(self._longest_skip, CHEAP * price_ns // max(busy_ns, 1))
        return is_changed

    def settle(self) -> None:
        """Take the present state for the one to compare with."""
        self._torch = torch.default_generator.get_state()
        self._seen = self._look()

    def has_changed(self) -> bool:
        """Whether anything is not what it was; what it is now is compared with next time."""
        before, before_torch = self._seen, self._torch
        self.settle()
        return before != self._seen or not torch.equal(before_torch, self._torch)

    def _look(self) -> list[Any]:
        numpy = sys.modules.get("numpy")
        if not self._numpy_known and hasattr(numpy, "random"):
            self._numpy_known = True
            self._streams.append(_numpy_stream(numpy))
        return [*(read() for read in self._streams), *_numbers(self._parts)]


def _numbers(parts: list[Any]) -> Iterator[Any]:
    """Counters and the like: an attribute that was set once and stays is no state."""
    for each in parts:
        for value in list_values(each):
            if type(value) in {int, float}:
                yield value


def _python_stream() -> Callable[[], Any]:
    """Reads the position of `random` and a word of its state, instead of building 625 integers."""
    probe = random.Random(7)
    words = _words_at(id(probe) + _HEAD)
    before = words[:]
    probe.getrandbits(32)
    after = words[:]
    # A stream that was seeded is at 624 and at 1 after its first word.
    if (before[0], after[0]) != (624, 1):
        return random.getstate
    own = _words_at(id(random._inst) + _HEAD)
    return lambda: own[:]


def _numpy_stream(numpy: Any) -> Callable[[], Any]:
    """The same of `numpy.random`: its state begins with 624 words and then has the position."""
    state = numpy.random.mtrand._rand._bit_generator
    slow = numpy.random.get_state
    try:
        probe = numpy.random.MT19937(7)
        position = ctypes.c_int.from_address(probe.ctypes.state_address + 624 * 4)
        probe.random_raw(3)
        is_known = position.value == probe.state["state"]["pos"] > 0
        if type(state) is not numpy.random.MT19937 or not is_known:
            return lambda: repr(slow())
        address = state.ctypes.state_address
        place = ctypes.c_int.from_address(address + 624 * 4)
        first = ctypes.c_uint32.from_address(address)
    except AttributeError:
        return lambda: repr(slow())
    return lambda: (place.value, first.value)


def _words_at(address: int) -> Any:
    return (ctypes.c_uint32 * _WORDS).from_address(address)


def owns_generator(*things: Any) -> bool:
    """Whether a random generator hangs on something that each worker gets a copy of."""
    return any(_is_generator(each) for thing in things for each in _walk(thing))


def _is_generator(thing: Any) -> bool:
    if isinstance(thing, (random.Random, torch.Generator)):
        return True
    kind = type(thing)
    return kind.__module__.startswith("numpy.random") and kind.__name__ in {
        "Generator", "RandomState", "MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64",
    }  # fmt: skip


def _walk(root: Any) -> Iterator[Any]:
    """What hangs on an object, by its attributes and plain containers; properties are not asked."""
    todo, seen = [(root, 0)], {id(root)}
    while todo and len(seen) < MOST_OBJECTS:
        thing, depth = todo.pop()
        yield thing
        if depth >= DEEPEST:
            continue
        for part in _parts(thing):
            if id(part) not in seen and not isinstance(part, (str, bytes, int, float, type)):
                seen.add(id(part))
                todo.append((part, depth + 1))


def _parts(thing: Any) -> list[Any]:
    kind = type(thing)
    if kind in {list, tuple}:
        return list(thing[:MOST_ITEMS])
    if kind is dict:
        return [value for _, value in zip(range(MOST_ITEMS), thing.values(), strict=False)]
    return _held(thing) if kind in _CALLABLES else list_values(thing)


_CALLABLES = (MethodType, FunctionType, functools.partial)


def _held(thing: Any) -> list[Any]:
    """What a function has with it."""
    if type(thing) is MethodType:
        return [thing.__self__, thing.__func__]
    if type(thing) is functools.partial:
        return [thing.func, *thing.args, *thing.keywords.values()]
    return [cell.cell_contents for cell in thing.__closure__ or () if _is_filled(cell)]


def list_values(thing: Any) -> list[Any]:
    """Of an object's attributes as they are, whatever its class does when it is asked for one.

    Where it can be avoided not by `__dict__`: Python 3.11 and 3.12 keep attributes in the object
    itself until somebody asks for it, and the job reads them a third slower from then on. Those of
    tensors, whose methods are then slower to find, and of modules are nobody's state.
    """
    if isinstance(thing, (torch.Tensor, ModuleType)):
        return []
    if all(_is_python(kind) for kind in type(thing).__mro__[:-1]):
        found = [each for each in gc.get_referents(thing) if each is not type(thing)]
        if [type(each) for each in found] != [dict]:
            return found
    try:
        own = object.__getattribute__(thing, "__dict__")
    except (AttributeError, TypeError):
        return []
    return list(own.values()) if type(own) is dict else []


def _is_python(kind: type) -> bool:
    return kind.__flags__ & (_HEAP_TYPE | _IMMUTABLE_TYPE) == _HEAP_TYPE


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
