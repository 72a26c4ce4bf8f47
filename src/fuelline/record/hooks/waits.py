"""Waits of the training thread in Python's own library: at a queue, a future, a pool, a pipe.

A job whose batches come from nothing that we know takes them so: a thread fills a queue, a pool of
processes computes ahead, a coroutine fetches. What it waits on between two steps stands in for a
source; who feeds that is found by its reader (`signals/recorded/fetching/feeders.py`).

Only the thread that trains is timed, only its outermost wait, and nothing as soon as a loader that
has hooks of its own gives batches in this process: then a queue is part of that loader, or has
nothing to do with batches.
"""

import json
from _thread import get_ident
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.schema.wire import Flag, Kind, Phase

__all__ = ["PYTHON", "OwnSource", "WaitPoint", "watch_waits"]

PYTHON = "python"
"""`LoaderFacts.framework` of what stands in for a source."""
SOURCE_ID = 1 << 20
"""Of all waits together, which one source is behind; those of adapters are numbered from 1."""
SHORT_NS = 20_000
FOLLOWS_NS = 1_000_000
"""A wait this short is left out if another has ended as long ago: a job that takes its samples one
by one would pay for a record of each."""

POINTS = (
    ("queue", "Queue", ("get",)),
    ("multiprocessing.queues", "Queue", ("get",)),
    ("multiprocessing.queues", "SimpleQueue", ("get",)),
    ("multiprocessing.pool", "IMapIterator", ("next", "__next__")),
    ("multiprocessing.pool", "ApplyResult", ("get",)),
    ("multiprocessing.connection", "Connection", ("recv", "recv_bytes")),
    ("concurrent.futures._base", "Future", ("result",)),
    ("asyncio.base_events", "BaseEventLoop", ("run_until_complete",)),
    ("threading", "Condition", ("wait",)),
)
"""Module, class and functions in which a thread waits for another thread or process. Events,
semaphores, barriers, and waiting for several futures all end in a condition."""

_WAIT_KIND, _SOURCE_KIND = int(Kind.WAIT), int(Kind.SOURCE)
_TRAINING, _END, _ERROR = int(Flag.TRAINING), int(Flag.END), int(Flag.ERROR)
_WAIT, _COMPUTE = int(Phase.WAIT), int(Phase.COMPUTE)
_BETWEEN = frozenset((int(Phase.OUTSIDE), _COMPUTE))
"""Phases in which a wait is for a batch; in the others it belongs to a pause or to a source."""

Watch = Callable[[str, Callable[[], None]], None]
"""Runs an action once a module has been imported."""


def watch_waits(guest: Guest, patches: Patches, watch: Watch, add: Callable[[Hook], None]) -> None:
    """Hook each point, now or when the job imports its module."""
    source = OwnSource(guest)
    for module, owner, names in POINTS:

        def install(
            module: str = module,
            owner: str = owner,
            names: tuple[str, ...] = names,
        ) -> None:
            from importlib import import_module  # noqa: PLC0415 - it is loaded: we were told so

            holder = getattr(import_module(module), owner, None)
            point = WaitPoint(guest, source, f"{module.partition('._')[0]}.{owner}")
            for name in names:
                original = getattr(holder, name, None)
                if original is not None:
                    patches.replace(holder, name, point.wrap(original))
            add(point)

        watch(module, install)


class OwnSource:
    """What all waits together stand for."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self.forget()
        guest.on_fork(self.forget)

    def forget(self) -> None:
        """Begin again, in a forked child."""
        self._count = 0
        self._ended_ns = 0

    def add(self, start_ns: int, end_ns: int, label: str, flags: int) -> None:
        """Record a wait, but for a short one that follows another."""
        is_short = end_ns - start_ns < SHORT_NS and start_ns - self._ended_ns < FOLLOWS_NS
        self._ended_ns = end_ns
        if is_short:
            return
        if not self._count:
            text = self._guest.spool.text(json.dumps({"loader": label, "framework": PYTHON}))
            self._guest.append(_SOURCE_KIND, monotonic_ns(), 0, SOURCE_ID, text)
        self._count += 1
        self._guest.append(
            _WAIT_KIND, start_ns, end_ns - start_ns, SOURCE_ID, -1, -1, -1, self._count, flags
        )


class WaitPoint(Hook):
    """One class of Python's library in which a thread waits for others."""

    name = "wait point"
    forbids = "saying how long the training waited for a queue, a future or a pool"

    def __init__(self, guest: Guest, source: OwnSource, label: str) -> None:
        super().__init__(guest)
        self._source = source
        self._label = label

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start, if it is the trainer who waits, between two steps."""
        guest = self.guest
        ident = get_ident()
        if guest.is_fed or guest.is_watched or ident != guest.trainer or guest.is_at_wait_point:
            return None
        if guest.spool.buffer.phase not in _BETWEEN:
            return None
        if ident in guest.waiting or ident in guest.fetching or ident in guest.backward:
            return None
        guest.is_at_wait_point = True
        guest.enter(_WAIT)
        return guest.steps, monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it, unless steps were made inside: then it holds the whole training."""
        now_ns = monotonic_ns()
        steps, start_ns = ticket
        guest = self.guest
        guest.is_at_wait_point = False
        guest.enter(_COMPUTE)
        if steps != guest.steps:
            return
        flags = _TRAINING if guest.is_learning() else 0
        if error is not None:
            flags |= _END if isinstance(error, StopIteration) else _ERROR
        self._source.add(start_ns, now_ns, self._label, flags)

    def withdraw(self) -> None:
        """This thread waits for nothing."""
        if get_ident() == self.guest.trainer:
            self.guest.is_at_wait_point = False
