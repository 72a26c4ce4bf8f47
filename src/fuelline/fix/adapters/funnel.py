"""The trainer's side of the workers' results: one pipe a worker, read as if it were one queue.

Torch's loader has one queue for all workers, whose lock a worker that is killed may take along: the
others then hang. Here each worker has a queue of its own, so that nothing but its own batches is
lost with it. A worker's death is told in its place in the stream, after all that it had sent.
"""

from __future__ import annotations

import os
import queue
import select
from collections import deque
from multiprocessing.reduction import ForkingPickler
from threading import Lock
from time import monotonic
from typing import Any

from fuelline.fix.adapters.mailboxes import Fallen

__all__ = ["Funnel"]

_LOST = (EOFError, ConnectionError, FileNotFoundError)
"""A pipe that ends in the midst of a message, a socket of a dead worker's that nobody answers."""


class Funnel:
    """Looks to torch like the queue of results."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._readers: dict[int, tuple[int, Any]] = {}
        self._sentinels: dict[int, int] = {}
        self._queues: dict[int, Any] = {}
        self._own: deque[Any] = deque()
        self._lock = Lock()
        self._wake_r, self._wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll.register(self._wake_r, select.EPOLLIN)

    def add(self, worker_id: int, results: Any) -> None:
        """Listen to a worker's queue; the reader must be the only one of its pipe."""
        reader = results._reader
        self._queues[worker_id] = results
        self._readers[reader.fileno()] = (worker_id, reader)
        self._poll.register(reader.fileno(), select.EPOLLIN)

    def watch(self, worker_id: int, sentinel: int) -> None:
        """Notice the worker's end."""
        self._sentinels[sentinel] = worker_id
        self._poll.register(sentinel, select.EPOLLIN)

    def get(self, timeout: float | None = None) -> Any:
        """The next message of any worker; `queue.Empty` if there is none in time."""
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            with self._lock:
                if self._own:
                    return self._own.popleft()
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left < 0:
                raise queue.Empty
            ready = self._poll.poll(left)
            if len(ready) == 1 and ready[0][0] in self._readers:
                message = self._receive(ready[0][0])
                if message is not None:
                    return message
                continue
            self._take(fd for fd, _ in ready)

    def _take(self, ready: Any) -> None:
        ends = []
        for fd in ready:
            if fd == self._wake_r:
                os.read(fd, 4096)
            elif fd in self._readers:
                message = self._receive(fd)
                if message is not None:
                    self._keep(message)
            else:
                ends.append(fd)
        for fd in ends:
            self._bury(fd)

    def _receive(self, fd: int) -> Any:
        """One message; None if there is none to be had from this worker any more."""
        worker_id, reader = self._readers[fd]
        try:
            return ForkingPickler.loads(reader.recv_bytes())
        except _LOST:
            self._forget(fd)
            return (Fallen(worker_id), None)

    def _bury(self, sentinel: int) -> None:
        """A worker has ended: what it had sent first, then the news."""
        self._poll.unregister(sentinel)
        worker_id = self._sentinels.pop(sentinel)
        fd = next((fd for fd, entry in self._readers.items() if entry[0] == worker_id), None)
        while fd is not None and fd in self._readers:
            if not self._readers[fd][1].poll(0):
                self._forget(fd)
                self._keep((Fallen(worker_id), None))
                return
            self._keep(self._receive(fd))

    def _forget(self, fd: int) -> None:
        self._poll.unregister(fd)
        del self._readers[fd]

    def _keep(self, message: Any) -> None:
        with self._lock:
            self._own.append(message)

    def put(self, message: Any) -> None:
        """A message of the trainer's own; torch wakes its pinning thread so."""
        self._keep(message)
        try:
            os.write(self._wake_w, b"x")
        except BlockingIOError:
            pass  # it is awake enough

    def cancel_join_thread(self) -> None:
        """There is no thread."""

    def close(self) -> None:
        """The pipes are closed with the last reference to them."""

    def __del__(self) -> None:
        for fd in (self._wake_r, self._wake_w):
            os.close(fd)
