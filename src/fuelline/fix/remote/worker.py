"""The worker on another host: torch's own worker loop, fed and emptied over one connection.

The loop is the one that local workers run, with the same seeds, `get_worker_info()`, start function
and fetcher, between the same mailboxes; only the line is another. One thread receives, one shows
that the process lives. When the connection ends, so does the process, whatever it is doing: no
worker outlives its job.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import queue
import threading
from multiprocessing.reduction import ForkingPickler
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import torch

from fuelline.fix.elastic import seam
from fuelline.fix.elastic.mailboxes import Inbox, Outbox, Slots, WorkerStart
from fuelline.fix.remote.packing import find_environment, unpack
from fuelline.fix.remote.parcels import Delivered, find_fingerprint, pack
from fuelline.fix.remote.wire import PULSE_S, FrameKind, meet_helper

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.fix.remote.bootstrap import SourceFinder
    from fuelline.fix.remote.wire import WorkerLink

__all__ = ["work"]

_FLOOD_BYTES = 1 << 20
_NOTHING = bytes(ForkingPickler.dumps(None))


def work(address: tuple[str, int], secret: bytes, number: int, finder: SourceFinder) -> None:
    """Until the job is over."""
    link = meet_helper(address, secret, number)
    worker = _RemoteWorker(link, finder)
    threading.Thread(target=worker.receive, daemon=True, name="fuelline-receive").start()
    threading.Thread(target=_show_life, args=(link,), daemon=True, name="fuelline-pulse").start()
    worker.run()


def _show_life(link: WorkerLink) -> None:
    pause = threading.Event()
    try:
        while not pause.wait(PULSE_S):
            link.pulse()
    except OSError:
        os._exit(0)  # nobody is there any more


class _Session:
    """One iterator, or one check."""

    def __init__(self, number: int, given: bytes = b"") -> None:
        self.number = number
        self.given = given
        self.tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.is_over = False

    def is_set(self) -> bool:
        """As torch's loop asks its event."""
        return self.is_over

    def end(self) -> None:
        """No more is wanted, of what it has been given neither."""
        self.is_over = True
        self.tasks.put(_NOTHING)


class _RemoteWorker:
    def __init__(self, link: WorkerLink, finder: SourceFinder) -> None:
        self._link = link
        self._finder = finder
        self._todo: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._sessions: dict[int, _Session] = {}
        self._recipe: memoryview = memoryview(b"")
        self._checks: list[bytes] = []

    def receive(self) -> None:
        """In a thread of its own: the end of the job is noticed in the middle of a fetch."""
        try:
            while True:
                frame = self._link.receive_head()
                body = bytes(self._link.receive(frame.body))
                self._sort(frame.kind, frame.session, body)
        except (OSError, EOFError):
            os._exit(0)

    def _sort(self, kind: int, number: int, body: bytes) -> None:
        session = self._sessions.get(number)
        if kind == FrameKind.OPEN:
            session = self._sessions[number] = _Session(number, body)
            self._todo.put((kind, session))
        elif kind == FrameKind.TASK and session is not None:
            session.tasks.put(body)
        elif kind == FrameKind.END and session is not None:
            del self._sessions[number]
            session.end()
        elif kind in {FrameKind.LOAD, FrameKind.CHECK, FrameKind.FLOOD}:
            self._todo.put((kind, body))

    def run(self) -> None:
        """One thing after the other, in the main thread: there torch's loop expects to be."""
        actions: dict[FrameKind, Callable[[Any], None]] = {
            FrameKind.LOAD: self._load,
            FrameKind.CHECK: self._check,
            FrameKind.FLOOD: self._flood,
            FrameKind.OPEN: self._open,
        }
        while True:
            kind, given = self._todo.get()
            actions[FrameKind(kind)](given)

    def _load(self, content: bytes) -> None:
        try:
            problem = self._take(memoryview(content))
        except Exception as failure:  # noqa: BLE001 - code of the job's own runs in it; it is told
            problem = f"it cannot be rebuilt there: {type(failure).__name__}: {failure}"
        self._link.send(FrameKind.LOADED, problem.encode())

    def _take(self, content: memoryview) -> str:
        head, self._recipe = unpack(content)
        for name in head["environment"]:
            if name.isidentifier() and name != "Python":
                try:
                    __import__(name)
                except ImportError:
                    return f"{name} is not installed there"
        here = find_environment()
        for name, version in head["environment"].items():
            if here.get(name) != version:
                return f"{name} is {version} on this host and {here.get(name)} there"
        self._finder.sources.update(head["sources"])
        if os.path.isdir(head["folder"]):  # noqa: PTH112 - relative paths mean the job's folder
            os.chdir(head["folder"])
        self._checks = head["checks"]
        pickle.loads(self._recipe)
        return ""

    def _check(self, _: bytes) -> None:
        """Prepare the batches that came along, as any others."""
        line = _CheckLine(self._checks)
        given = {"worker": 0, "base_seed": 0, "num_workers": 1}
        try:
            self._loop(line, line, given)
            answer = {"batches": line.batches, "why": line.why}
        except Exception as failure:  # noqa: BLE001 - as above
            answer = {"batches": [], "why": f"{type(failure).__name__}: {failure}"}
        self._link.send(FrameKind.CHECKED, json.dumps(answer).encode())

    def _flood(self, asked: bytes) -> None:
        piece = memoryview(bytes(_FLOOD_BYTES))
        for _ in range(max(1, int(asked) // _FLOOD_BYTES)):
            self._link.send(FrameKind.FLOODED, piece)
        self._link.send(FrameKind.FLOODED)

    def _open(self, session: _Session) -> None:
        self._loop(_Line(self._link, session), session, json.loads(session.given))

    def _loop(self, line: Any, done: Any, given: dict[str, Any]) -> None:
        recipe = pickle.loads(self._recipe)
        number = given["worker"]
        slots = Slots(multiprocessing, number + 1)
        line.bind(slots, number)
        start = WorkerStart(recipe["init_fn"], slots, is_spare=True)
        inbox = Inbox(line, slots, number, start, 0)
        outbox = Outbox(line)
        inbox.bind(outbox)
        try:
            seam.worker._worker_loop(
                dataset_kind=recipe["dataset_kind"],
                dataset=recipe["dataset"],
                index_queue=inbox,
                data_queue=outbox,
                done_event=done,
                auto_collation=recipe["auto_collation"],
                collate_fn=recipe["collate_fn"],
                drop_last=recipe["drop_last"],
                base_seed=given["base_seed"],
                init_fn=start,
                worker_id=number,
                num_workers=given["num_workers"],
                persistent_workers=given.get("persistent_workers", False),
                shared_seed=given.get("shared_seed"),
            )
        finally:
            seam.replace_worker_info(None)
            if "_new_shared" in vars(torch.UntypedStorage):
                del torch.UntypedStorage._new_shared  # the pool was that session's


class _Line:
    """What the mailboxes take for the channel to the trainer."""

    def __init__(self, link: WorkerLink, session: _Session) -> None:
        self.pool: Any = None
        """Where torch's collate function makes its tensors: the memory is used again."""
        self._link = link
        self._session = session
        self._next: bytes | None = None
        self._slots: Any = None
        self._usage: Any = None

    def bind(self, slots: Slots, number: int) -> None:
        """Know where this worker's work is counted."""
        del number
        self._slots, self._usage = slots, slots.usage()

    def wait(self, timeout_s: float | None) -> bool:
        """Whether there is a task."""
        if self._next is None:
            try:
                self._next = self._session.tasks.get(timeout=timeout_s)
            except queue.Empty:
                return False
        return True

    def receive(self) -> Any:
        """The task."""
        content, self._next = self._next or _NOTHING, None
        message = ForkingPickler.loads(content)
        if message is None:
            self._session.is_over = True
        return message

    def put(self, message: Any) -> None:
        """Send a batch; an error of pickling is the caller's to send instead."""
        now = self._slots.usage()
        busy_ns, cpu_ns = now.busy_ns - self._usage.busy_ns, now.cpu_ns - self._usage.cpu_ns
        body, parts = pack(Delivered(message, busy_ns, cpu_ns, self._slots.is_varying()))
        self._usage = now
        self._link.send(FrameKind.MESSAGE, body, parts, self._session.number)

    def cancel_join_thread(self) -> None:
        """As a queue does."""

    def close(self) -> None:
        """The connection is for the next session as well."""


class _CheckLine:
    """Gives the tasks of a check, and keeps fingerprints of what comes."""

    pool: Any = None

    def __init__(self, tasks: list[bytes]) -> None:
        self._tasks = [*tasks, _NOTHING]
        self.batches: list[tuple[str, float, int]] = []
        """Fingerprint, seconds, and bytes of each."""
        self.why = ""
        self.is_over = False
        self._began_ns = 0

    def bind(self, slots: Slots, number: int) -> None:
        """As above."""

    def is_set(self) -> bool:
        """As torch's loop asks its event."""
        return self.is_over

    def wait(self, timeout_s: float | None) -> bool:
        """There always is one."""
        del timeout_s
        return True

    def receive(self) -> Any:
        """The next one."""
        message = ForkingPickler.loads(self._tasks.pop(0))
        self.is_over = message is None
        self._began_ns = monotonic_ns()
        return message

    def put(self, message: Any) -> None:
        """Keep what is compared."""
        seconds = (monotonic_ns() - self._began_ns) / 1e9
        _, batch = message
        if isinstance(batch, seam.ExceptionWrapper):
            self.why = str(batch.exc_msg).strip().splitlines()[-1]
            return
        body, parts = pack(message)
        size = len(body) + sum(part.nbytes for part in parts)
        self.batches.append((find_fingerprint(batch), seconds, size))

    def cancel_join_thread(self) -> None:
        """As a queue does."""

    def close(self) -> None:
        """As a queue does."""
