"""The trainer's side of the workers' results: one line per worker, read as if it were one queue.

Torch's loader has one queue for all workers, whose lock a worker that is killed may take along: the
others then hang. Here each worker has its own line, so that nothing but its own batches is
lost with it. A worker's death has its place in the stream, after all that it had sent.
One thread reads, the trainer's or the one that pins.
"""

from __future__ import annotations

import os
import queue
import select
from collections import deque
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Any

from fuelline.fix.elastic.mailboxes import DeadWorker

if TYPE_CHECKING:
    from fuelline.fix.elastic.channel import SocketChannel

__all__ = ["ResultQueue"]


class ResultQueue:
    """Looks to torch like the queue of results."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._lines: dict[int, tuple[int, SocketChannel]] = {}
        self._sentinels: dict[int, int] = {}
        self._own: deque[Any] = deque()
        self.blocked_ns = 0
        """In all, without anything to take: no time of ours is in it."""
        self._wake_r, self._wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll.register(self._wake_r, select.EPOLLIN)

    def add(self, worker_id: int, line: SocketChannel) -> None:
        """Listen to a worker."""
        self._lines[line.fileno()] = (worker_id, line)
        self._poll.register(line.fileno(), select.EPOLLIN)

    def watch(self, worker_id: int, sentinel: int) -> None:
        """Notice the worker's end."""
        self._sentinels[sentinel] = worker_id
        self._poll.register(sentinel, select.EPOLLIN)

    def get(self, timeout: float | None = None) -> Any:
        """The next message of any worker; `queue.Empty` if there is none in time."""
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            if self._own:
                return self._own.popleft()
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left < 0:
                raise queue.Empty
            self._take([fd for fd, _ in self._poll.poll(0) or self._block(left)])

    def _block(self, timeout_s: float | None) -> list[tuple[int, int]]:
        began_ns = monotonic_ns()
        ready = self._poll.poll(timeout_s)
        self.blocked_ns += monotonic_ns() - began_ns
        return ready

    def _take(self, ready: list[int]) -> None:
        """One message of each that has any; then the ends, as these may have sent more before."""
        for fd in ready:
            if fd in self._lines:
                self._receive(fd)
            elif fd == self._wake_r:
                os.read(fd, 4096)
        for fd in ready:
            if fd in self._sentinels:
                self._bury(fd)

    def _receive(self, fd: int) -> bool:
        """Whether there may be more of this worker's."""
        worker_id, line = self._lines[fd]
        try:
            self._own.append(line.receive())
        except BlockingIOError:
            return False
        except EOFError:
            self._end(fd, worker_id)
            return False
        return True

    def _bury(self, sentinel: int) -> None:
        """A worker has ended: what it had sent first, then the news."""
        self._poll.unregister(sentinel)
        worker_id = self._sentinels.pop(sentinel)
        lines = list(self._lines.items())  # the trainer may add one while another thread pins
        fd = next((fd for fd, entry in lines if entry[0] == worker_id), None)
        if fd is None:
            return
        while self._receive(fd):
            pass
        if fd in self._lines:
            self._end(fd, worker_id)

    def _end(self, fd: int, worker_id: int) -> None:
        self._poll.unregister(fd)
        del self._lines[fd]
        self._own.append((DeadWorker(worker_id), None))

    def put(self, message: Any) -> None:
        """A message of the trainer's own; torch wakes its pinning thread so."""
        self._own.append(message)
        try:
            os.write(self._wake_w, b"x")
        except BlockingIOError:
            pass  # it is awake enough

    def cancel_join_thread(self) -> None:
        """There is no thread."""

    def close(self) -> None:
        """The lines are torch's to close: it knows them as queues of indices."""

    def __del__(self) -> None:
        for fd in (self._wake_r, self._wake_w):
            os.close(fd)
