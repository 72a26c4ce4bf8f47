"""Our presence in one process of the job: its spool, its trainer thread, what each thread is in.

All hooks share one `Guest`. It decides which thread is the trainer, whose phase is published for
the observer. A forked child starts afresh: it inherits the hooks, but neither the spool nor the
state of a thread that was half-way through a hook when it forked.

The hooks on the way of every step look into `Spool.buffer` themselves: the training has just
emptied the caches, and then calling a function costs more than what it does.
"""

import itertools
import json
import os
import sys
import threading
import weakref
from _thread import get_ident, get_native_id
from collections.abc import Callable
from resource import RLIMIT_NOFILE, getrlimit
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from fuelline.record.hooks.threadclock import ThreadClockReader
from fuelline.record.spool import Spool
from fuelline.schema.redaction import redact
from fuelline.schema.wire import Kind, Phase, tail

if TYPE_CHECKING:
    from types import FrameType

    from fuelline.record.buffer import QuickCalls

__all__ = ["Framework", "Guest", "HookThread", "find_guest", "join", "list_begun"]

KEPT_CLOCKS = 8
"""Threads whose clocks keep descriptors; a job with hundreds of threads needs them itself."""
MOST_PLACE_CHARACTERS = 3000
"""Of a stack that is told: a text of the spool holds 4096 bytes."""
MOST_FRAMES = 60
_HOOKS = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100, PTH120 - no pathlib here
SPARE_DESCRIPTORS = 400
"""Under a lower limit (ulimit -n) no clock keeps any: they would be more than a twentieth of it."""

_BLINDSPOT, _PROCESS = int(Kind.BLINDSPOT), int(Kind.PROCESS)
_OUTSIDE = int(Phase.OUTSIDE)


class Framework(NamedTuple):
    """What all hooks have to know of the framework that they watch; its adapter says it."""

    package: str
    """Top of its modules' names: its exceptions may come up in our code."""
    folder: str
    """Where its files are, with a separator at the end."""
    handlers: tuple[str, ...]
    """Files among them with signal handlers that raise: that is not ours to swallow."""
    is_tracing: Callable[[], bool]
    """Whether its compiler traces through the caller. Called at every step."""


def list_begun() -> list[tuple[int, str]]:
    """When Python was ready, and when the import of each package began, if anybody noted it."""
    watch = sys.modules.get("fuelline_watch")
    return list(getattr(watch, "BEGUN", ()))


class HookThread(threading.local):
    """What is kept for each thread by the hooks that are not on the way of every step."""

    pinning = False
    scaling = False
    """In a gradient scaler's step, which reads values itself."""
    reading = False
    """In a call that waits for the device."""
    exchanging = False
    """In a call that sends several tensors, each of which is sent by a call of its own."""
    is_waited_for: bool | None = None
    """In a functional collective: whether it has waited for its result itself; else None."""

    def __init__(self, threads: "itertools.count[int]") -> None:
        limit = getrlimit(RLIMIT_NOFILE)[0]
        is_tight = 0 <= limit < SPARE_DESCRIPTORS
        self.clock = ThreadClockReader(is_kept=next(threads) < KEPT_CLOCKS and not is_tight)


def _always() -> bool:
    return True


def _never_known() -> None:
    return None


_present: "dict[str, Guest]" = {}
"""By the folder of the run: frameworks of one process share a spool and a trainer."""


def join(run_dir: str, framework: Framework) -> "Guest":
    """The guest of this process, made with its first framework."""
    guest = _present.get(run_dir)
    if guest is None:
        guest = _present[run_dir] = Guest(Spool(f"{run_dir}/spool"), framework)
    guest.framework = framework
    return guest


def find_guest() -> "Guest | None":
    """The guest of this process, if a framework or a user has brought one in."""
    return next(iter(_present.values()), None)


class Guest:
    """The recorder as the hooks see it."""

    def __init__(
        self, spool: Spool, framework: Framework, introduce: Callable[[], None] | None = None
    ) -> None:
        self.spool = spool
        self.framework = framework
        """The one whose hooks are being made: each keeps its own."""
        self._buffer = spool.buffer
        self._appointment_actions = [] if introduce is None else [introduce]
        self._facts: dict[str, Any] = {}
        self._fork_actions: list[Callable[[], None]] = []
        self.waiting: set[int] = set()
        """Threads in `next()` of a loader, and so on: all but the trainer in its quick calls."""
        self.fetching: set[int] = set()
        """Threads in a fetcher; whatever loaders a dataset uses itself are part of its fetch."""
        self.backward: set[int] = set()
        """Threads in backward."""
        self.hook_states: list[QuickCalls] = []
        """Of the quick hooks: a new trainer is inside none of them."""
        self.is_fed = False
        """Whether a loader with hooks of its own gives batches: then no other wait is for one."""
        self.is_watched = False
        """Whether the user has named the source of batches: likewise."""
        self.watched: Any = None
        """The hook on what users name."""
        self.is_at_wait_point = False
        """Whether the trainer is in a wait of Python's own library."""
        self.steps = 0
        """Steps so far, of all optimizers and the like."""
        self.is_device_busy: Callable[[], bool | None] = _never_known
        """Whether the device is at work on an earlier step, where that can be asked for nothing."""
        self.is_learning: Callable[[], bool] = _always
        """Whether a batch that is taken now is probably one to train with."""
        self.build: Any = None
        """The hook on `iter(loader)`, for loaders that come with other libraries."""
        self.device_clock: Any = None
        """What times events on the device, where there is one: `mark(place)` and `read()`."""
        self.rank_groups: Any = None
        """What counts collectives, for all hooks on them."""
        self.meet_device: Callable[[], None] | None = None
        """What to do once an optimizer has weights on an accelerator; None: nothing more."""
        self.reaches_spawned = True
        """Whether processes that are not forked are recorded, too, as by `fuelline run`."""
        self.is_over: Callable[[], bool] | None = None
        """Whether the recording has ended, in a process that goes on; None: it ends with it."""
        self._forget()
        forget = weakref.WeakMethod(self._forget)  # hooks that were taken out must be let go
        os.register_at_fork(after_in_child=lambda: (alive := forget()) and alive())

    def on_appointment(self, action: Callable[[], None]) -> None:
        """Add something to do once the first trainer is known."""
        self._appointment_actions.append(action)

    def on_fork(self, action: Callable[[], None]) -> None:
        """Add something that a forked child has to forget as well."""
        self._fork_actions.append(action)

    def _forget(self) -> None:
        self.pid = os.getpid()
        self.lane = HookThread(itertools.count())
        self.is_proven = False
        """Whether the trainer was seen in backward, so that no other thread takes its place."""
        self.ranked_by = ""
        """Who told which rank this process is: nobody yet, a "group" of its own, or the "job"."""
        self.is_fed = self.is_watched = self.is_at_wait_point = False
        self._blindspots: set[str] = set()
        for state in (self.waiting, self.fetching, self.backward):
            state.clear()
        for calls in self.hook_states:
            calls.is_inside = False
        for action in self._fork_actions:
            action()

    @property
    def trainer(self) -> int:
        """The thread whose phase is published; 0 before there is one."""
        return self._buffer.trainer

    def appoint(self) -> None:
        """Make the current thread the trainer."""
        buffer = self._buffer
        is_first = not buffer.trainer
        buffer.trainer, buffer.tid = get_ident(), get_native_id()
        self.spool.set_trainer(buffer.tid)
        buffer.phase = _OUTSIDE  # the phase of a trainer before it says nothing of this one
        for calls in self.hook_states:
            calls.is_inside = False
        for action in self._appointment_actions if is_first else ():
            action()

    def introduce(self, facts: dict[str, Any]) -> None:
        """Write down which process this is; what was said before holds but for the same names."""
        self._facts = {**self._facts, **facts}
        self._tell_facts(self._facts)

    def _tell_facts(self, facts: dict[str, Any]) -> None:
        self.append(_PROCESS, monotonic_ns(), 0, self.spool.text(json.dumps(facts)))

    def tell_step_place(self, below: str = "") -> None:
        """Write down the stack that ends in the loop's line of a step: others are compared with it.

        Outermost frame first, named as py-spy does. `below`: a folder whose frames, innermost,
        are left out, as those of a call that compiles, which later calls do not have.
        """
        frames: list[str] = []
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - Python has no other way
        while frame is not None and len(frames) < MOST_FRAMES:
            code = frame.f_code
            is_below = bool(below) and not frames and code.co_filename.startswith(below)
            if not is_below and not code.co_filename.startswith(_HOOKS):
                name = getattr(code, "co_qualname", code.co_name)
                frames.append(f"{name} ({code.co_filename}:{frame.f_lineno})")
            frame = frame.f_back
        frames.reverse()
        if sum(map(len, frames)) < MOST_PLACE_CHARACTERS:
            known = {name: value for name, value in self._facts.items() if name != "begun"}
            self._tell_facts({**known, "step_frames": frames})

    def leave(self) -> None:
        """The last framework goes: nothing is recorded any more."""
        for run_dir, guest in list(_present.items()):
            if guest is self:
                del _present[run_dir]
        self.spool.close()

    def is_trainer(self, ident: int) -> bool:
        """Whether a thread is the trainer, and not one that got its identifier after it ended."""
        if ident != self.trainer:
            return False
        if get_native_id() != self._buffer.tid:
            self.appoint()
        return True

    def prove(self) -> None:
        """The current thread runs backward, which outranks merely taking batches."""
        self.is_proven = True
        if self.trainer != get_ident():
            self.appoint()

    def enter(self, phase: int) -> int | None:
        """Enter a phase and return the one before; None if this thread is not the trainer."""
        if get_ident() != self.trainer:
            return None
        before, self._buffer.phase = self._buffer.phase, phase
        return before

    def append(  # noqa: PLR0917 - the fields of a record
        self,
        kind: int,
        start_ns: int,
        dur_ns: int,
        a: int = 0,
        b: int = 0,
        c: int = 0,
        d: int = 0,
        e: int = 0,
        flags: int = 0,
    ) -> None:
        """Keep one record; the trainer's are held as long as they come quickly.

        A call that began before this process was forked is its parent's; a note of no time has a
        start of 0.
        """
        buffer = self._buffer
        if 0 < start_ns < buffer.born_ns:
            return
        if not start_ns or get_ident() != buffer.trainer:
            self.spool.append(kind, start_ns, dur_ns, a, b, c, d, e, flags)
        elif buffer.keep(start_ns, start_ns + dur_ns, a, b, c, d, e, tail(kind, flags)):
            self.spool.write_buffered()

    def report_blindspot(self, what: str, why: str, forbids: str, code: str = "") -> None:
        """Write down, once for each `what`, something that cannot be seen in this process."""
        if what in self._blindspots:
            return
        self._blindspots.add(what)
        told = {"what": redact(what), "why": redact(why), "forbids": forbids, "code": code}
        self.append(_BLINDSPOT, 0, 0, self.spool.text(json.dumps(told)))
