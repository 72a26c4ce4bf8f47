"""Records of the trainer thread that are still to be written, and the quick calls that leave them.

A training step empties the caches, and then it is not the work that a hook does that costs, but
each object and each line of bytecode that must be fetched from memory again: ten times as much as
in a loop. So where the package was built with its compiled part (hatch_build.py says where), that
does what these classes do, and only then are there quick calls; `fuelline doctor` says which it is.
FUELLINE_NO_COMPILED_HOOKS=1 leaves it out, to compare.

A record is eight words here: start, length, five of its own, and `wire.tail` with the thread.
"""

import errno
import importlib
import os
import resource
import sys
from _thread import get_ident
from array import array
from collections import deque
from time import monotonic_ns, thread_time_ns
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

__all__ = [
    "LEFT_OUT",
    "PLAIN",
    "BackwardTicket",
    "IteratorNote",
    "MarkQueue",
    "MarkSettings",
    "Quick",
    "QuickCalls",
    "RecordBuffer",
    "TakeSettings",
    "TakeTicket",
    "WaitPhases",
    "is_compiled",
    "spill",
]

LEFT_OUT = "FUELLINE_NO_COMPILED_HOOKS"
"""Environment variable that keeps to the classes here."""
_LAYOUT = 7
"""What _buffer.c and this file say to each other; another build than this is not used."""
CPU_CLOCK_EVERY_NS = 2_000_000
"""Between two readings of the thread's CPU clock, 0.5 to 3 us each: a thousandth of the time."""


class RecordBuffer:
    """What all quick hooks of a process share."""

    notice: "Callable[[str, dict[str, int]], None] | None" = None
    """Compiled only: a callback of the garbage collector that holds a record of long ones."""

    __slots__ = (
        "_clock_read_ns",
        "_phase",
        "_words",
        "born_ns",
        "fetched",
        "tid",
        "trainer",
        "write_at",
    )

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
        """Begin again, in a forked child."""
        self.trainer = self.tid = self.write_at = self.fetched = self._clock_read_ns = 0
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
        if start_ns < self.born_ns:
            return False
        self._words.extend((start_ns, end_ns - start_ns, a, b, c, d, e, tail | self.tid))
        return end_ns >= self.write_at

    def mark(
        self, entries: "dict[int, tuple[weakref.ref[Any], int]]", thing: object, tail: int
    ) -> bool | None:
        """Hold a record of this moment with the thing's number; whether it is time to write.

        None: it has no number yet (`Identities.entries`), or this thread is not the trainer.
        """
        entry = entries.get(id(thing))
        if get_ident() != self.trainer or entry is None or entry[0]() is not thing:
            return None
        now_ns = monotonic_ns()
        return self.keep(now_ns, now_ns, entry[1], 0, self._read_cpu_clock(now_ns), 0, 0, tail)

    def _read_cpu_clock(self, now_ns: int) -> int:
        """The thread's CPU time so far; -1 if it was read a moment ago."""
        if now_ns - self._clock_read_ns < CPU_CLOCK_EVERY_NS:
            return -1
        self._clock_read_ns = now_ns
        return thread_time_ns()

    def take(self) -> bytes:
        """All that is held, which is not held any more."""
        fresh: list[int] = []
        words, self._words = self._words, fresh  # nothing here may start a garbage collection
        return array("q", words).tobytes()


class QuickCalls:
    """The quick calls of one hook."""

    __slots__ = ("is_inside", "quick_calls")

    def __init__(self, buffer: RecordBuffer) -> None:
        del buffer  # the compiled one has to know it
        self.quick_calls = 0
        """How many more calls may be quick; 0 also while the hook is off."""
        self.is_inside = False
        """Whether the trainer is in a call, quick or not; those within it belong to it."""


class MarkSettings(NamedTuple):
    """What a `MarkQueue` has to know; places are bits of a number."""

    fresh_ns: int
    """A place of `beginnings` so soon after another mark on its stream begins with that."""
    most: int
    """Events that the device has still to pass; past it marks are left out until half are read."""
    beginnings: int
    resuming: int
    """Places at which all goes on that was left out."""
    tail: int


class MarkQueue:
    """Timed events on the device's streams that it has still to pass, and its clock.

    `clock` has `answer_for(fault)` for what fails here, `read_beside(now_ns)` for marks of other
    streams, asked if `has_beside`, and `write()`, called when it is time to write records.
    """

    __slots__ = (
        *("_buffer", "_clock", "_is_full", "_marked_ns", "_marked_stream", "_pending", "_settings"),
        *("_spare", "device", "has_beside", "is_capturing", "latest", "latest_ns", "make_event"),
        *("number", "stream", "stream_id"),
    )

    make_event: "Callable[[], Any]"
    is_capturing: "Callable[[], Any]"
    stream: Any
    """That trains; None: no marks."""
    latest: Any
    """The event that was read last, and when the device passed it."""
    latest_ns: int

    def __init__(self, buffer: RecordBuffer, clock: Any, settings: MarkSettings) -> None:
        self._buffer, self._clock, self._settings = buffer, clock, settings
        self.stream_id = self.device = self.number = 0
        self._empty()

    def _empty(self) -> None:
        self._pending: deque[tuple[int, int, int, Any]] = deque()
        self._spare: list[Any] = []
        self.stream = self.latest = self._marked_stream = None
        self.latest_ns = self._marked_ns = 0
        self._is_full = self.has_beside = False

    def clear(self) -> list[Any]:
        """All that is held, which is not held any more: the caller says whether it may be freed."""
        everything = [
            *(self._pending, self._spare, self.stream, self.latest, self._marked_stream),
        ]
        self._empty()
        return everything

    def mark(self, place: int) -> None:
        """Queue an event on the training's stream, if this is the thread that trains."""
        if self.stream is not None and get_ident() == self._buffer.trainer:
            self.put(place, self.stream, self.stream_id)

    def read_and_mark(self, place: int) -> None:
        """Both."""
        self.read()
        self.mark(place)

    def put(self, place: int, stream: Any, stream_id: int) -> None:
        """Queue an event on a stream."""
        now_ns = monotonic_ns()
        try:
            # A stream that is being captured must not be touched.
            if not self._may_put(place, stream, now_ns) or self.is_capturing():
                return
            event = self.take_event()
            event.record(stream)
            self._pending.append((now_ns, place, stream_id, event))
            self._marked_ns, self._marked_stream = now_ns, stream
        except Exception as fault:  # noqa: BLE001 - the guard
            self._clock.answer_for(fault)

    def _may_put(self, place: int, stream: Any, now_ns: int) -> bool:
        fresh_ns, most, beginnings, resuming, _ = self._settings
        if (
            now_ns - self._marked_ns < fresh_ns
            and beginnings >> place & 1
            and stream is self._marked_stream
        ):
            return False
        pending = len(self._pending)
        if self._is_full and resuming >> place & 1 and pending <= most // 2:
            self._is_full = False
        if pending >= most:
            self._is_full = True
        return not self._is_full

    def take_event(self) -> Any:
        """One that can be recorded."""
        try:
            return self._spare.pop()
        except IndexError:
            return self.make_event()

    def give_event(self, event: Any) -> None:
        """Take one back."""
        self._spare.append(event)

    def read(self) -> None:
        """Write down the marks that the device has passed, if this is the thread that trains."""
        if self._pending and self.stream is not None and get_ident() == self._buffer.trainer:
            try:
                self._read()
            except Exception as fault:  # noqa: BLE001 - the guard
                self._clock.answer_for(fault)

    def _read(self) -> None:
        pending, is_time = self._pending, False
        if self.is_capturing() or not pending[0][3].query():
            return
        now_ns = monotonic_ns()
        while True:
            at_ns, place, stream_id, event = pending.popleft()
            before, self.latest = self.latest, event
            if before is not None:
                self.latest_ns += int(before.elapsed_time(event) * 1e6)
                self._spare.append(before)
            is_time |= self._buffer.keep(
                at_ns, now_ns, self.device, self.latest_ns, self.number, stream_id, place,
                self._settings.tail,
            )  # fmt: skip
            if not pending or not pending[0][3].query():
                break
        if self.has_beside:
            is_time |= self._clock.read_beside(now_ns)
        if is_time:
            self._clock.write()


def spill(path: str, at: int, records: bytes, notes_at: int, notes: bytes) -> int:
    """Write records into a file, then notes; 0, or the errno for which the file is as it was.

    The file is opened again each time: a job may close all descriptors, and use their numbers for
    files of its own. The compiled one keeps the GIL, so that no other thread of the job gets ahead
    of the one that a record holds up, and no signal handler of the job's runs in its midst. A pipe
    that somebody put in the file's place is not waited for (O_NONBLOCK), nor written to at an
    offset.
    """
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY and at + len(records) > limit:
        return errno.EFBIG  # asking the kernel would also send SIGXFSZ, which a job may not ignore
    try:
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags)
        try:
            if os.pwrite(descriptor, records, at) != len(records):
                os.ftruncate(descriptor, at)
                return errno.ENOSPC
            os.pwrite(descriptor, notes, notes_at)
        finally:
            os.close(descriptor)
    except OSError as refusal:
        if refusal.errno is None:
            raise  # of no system call: a handler of the job's raised it, as for a timeout
        return refusal.errno
    return 0


class IteratorNote(NamedTuple):
    """What is noted on a source's iterator, in its dictionary; read by `Quick.take`."""

    source_id: int
    batch_size: int | None
    enough: int = sys.maxsize
    """Looking at a batch costs six microseconds, so its size is taken for the usual one if as many
    batches are under way at the workers, as there are until the sampler is exhausted; without
    workers, if the fetch was given as many indices. More than any: always look."""


class WaitPhases(NamedTuple):
    """The phases in and after a wait, and how its record ends."""

    before: int
    after: int
    tail: int


class TakeSettings(NamedTuple):
    """What `Quick.take` has to know."""

    note: str
    """Under this name the iterator's dictionary has its `IteratorNote`."""
    yielded: str
    """Likewise: how many batches it has given out."""
    outstanding: str
    """Likewise: how many are under way."""
    is_training: "Callable[[], bool]"
    """Whether gradients are on."""
    look: "Callable[[Any, int | None], tuple[int, int]]"
    """Samples and bytes of a batch whose size is not certain."""
    training: WaitPhases
    evaluating: WaitPhases


class TakeTicket(NamedTuple):
    """A wait under way, from `begin` or from the compiled part to `close`."""

    ident: int
    iterator: Any
    note: IteratorNote
    is_training: bool
    position: int
    cpu_ns: int
    """The thread's CPU clock at the start; 0: not measured."""
    start_ns: int


class BackwardTicket(NamedTuple):
    """The same of a backward pass."""

    nodes: int
    cpu_ns: int
    start_ns: int


PLAIN = RecordBuffer, QuickCalls, None, spill, MarkQueue
"""The classes above, without quick calls, and the writing."""

Quick: "Callable[..., Any] | None" = None
"""Compiled only: what is called in place of a function of the framework that has a quick hook.

`Quick(hook, state, original, otherwise, write, tail, settings)` goes the quick way, which notes
when and how long, if the state lets it, and else calls `otherwise`, which is the thorough way. It
has

- `run(*args, **kwargs)`: any call, with a record that ends with `tail`;
- `fetch(fetcher, indices)`: a batch is made in the trainer; no record while records are held, and
  else the thorough way;
- `take(iterator)`: a batch of a source, as `TakeSettings` say.

What the original raises goes to the hook's `close`, with a `TakeTicket` or `BackwardTicket`, and on
to the job; a fault of ours goes to its `answer_for`. When it is time to write, `write` is called.
"""

if not TYPE_CHECKING and not os.environ.get(LEFT_OUT):
    try:
        _compiled = importlib.import_module("fuelline.record._buffer")
    except ImportError:
        _compiled = None
    if getattr(_compiled, "LAYOUT", None) == _LAYOUT:
        RecordBuffer, QuickCalls, Quick, MarkQueue = (
            _compiled.RecordBuffer,
            _compiled.QuickCalls,
            _compiled.Quick,
            _compiled.MarkQueue,
        )
        spill = _compiled.spill


def is_compiled() -> bool:
    """Whether the others are in use."""
    return RecordBuffer is not PLAIN[0]
