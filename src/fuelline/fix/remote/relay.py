"""The helper's side of one worker elsewhere: passes tasks out and batches in, as they are.

Nothing is unpickled here. A batch is received into shared memory that both this process and the
trainer have mapped and use again, and the trainer gets a packet that says where: for it, this is a
local worker. One thread receives from the other host; one a session sends tasks there.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any

from fuelline.fix.elastic.channel import SocketChannel
from fuelline.fix.elastic.memory import BytePool
from fuelline.fix.remote.wire import SILENT_S, FrameKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.fix.remote.placing import Node
    from fuelline.fix.remote.wire import WireFrame, WorkerLink

__all__ = ["LostWorkerError", "Relay"]


class LostWorkerError(Exception):
    """It is gone, or does not answer."""


class Relay:
    """One worker; `on_end` is called once, with the reason."""

    def __init__(
        self, number: int, node: Node, link: WorkerLink, on_end: Callable[[Relay, str], None]
    ) -> None:
        self.number = number
        self.node = node
        self.is_alive = True
        self.received_s = 0.0
        """CPU that receiving has taken, and for how many bytes."""
        self.received_bytes = 0
        self._link = link
        self._on_end = on_end
        self._heard_at = monotonic()
        self._answers: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self._session = 0
        self._channel: SocketChannel | None = None
        self._ending = threading.Lock()
        threading.Thread(target=self._run, daemon=True, name=f"relay-{number}").start()

    def ask(self, kind: FrameKind, answer: FrameKind, timeout_s: float, body: Any = b"") -> bytes:
        """Send, and wait for this kind of answer."""
        try:
            self._link.send(kind, body)
        except OSError as error:
            self.end(_describe(error))
        return self.expect(answer, timeout_s)

    def expect(self, answer: FrameKind, timeout_s: float) -> bytes:
        """Wait for an answer of this kind."""
        deadline = monotonic() + timeout_s
        while self.is_alive:
            try:
                got, content = self._answers.get(timeout=max(0.0, min(0.5, deadline - monotonic())))
            except queue.Empty:
                if monotonic() > deadline:
                    raise LostWorkerError(f"no answer within {timeout_s:.0f} s") from None
                continue
            if got == answer:
                return content
        raise LostWorkerError("it ended")

    def open(self, channel_fd: int, given: bytes) -> None:
        """A session for the iterator at the other end of this channel."""
        channel = SocketChannel(socket.socket(fileno=channel_fd))
        channel.pool = BytePool()
        if not self.is_alive:
            channel.close()
            return
        self._session += 1
        self._channel = channel
        arguments = (self._session, channel, given)
        threading.Thread(target=self._pass_tasks, args=arguments, daemon=True).start()

    def _pass_tasks(self, session: int, channel: SocketChannel, given: bytes) -> None:
        try:
            self._link.send(FrameKind.OPEN, given, session=session)
            while True:
                channel.wait(None)
                try:
                    self._link.send(
                        FrameKind.TASK, bytes(channel.receive_pickled()), session=session
                    )
                except BlockingIOError:
                    continue
                except EOFError:
                    break
            self._link.send(FrameKind.END, session=session)
        except OSError as error:
            self.end(_describe(error))
        if self._channel is channel:
            self._channel = None
        channel.close()

    def _run(self) -> None:
        try:
            while True:
                frame = self._link.receive_head()
                self._heard_at = monotonic()
                if frame.kind == FrameKind.MESSAGE:
                    self._pass_batch(frame)
                elif frame.kind != FrameKind.PULSE:
                    self._answers.put((frame.kind, bytes(self._link.receive(frame.body))))
        except EOFError:
            self.end("its process ended")
        except MemoryError:
            self.end("there is no shared memory for its batches")
        except OSError as error:
            self.end(_describe(error))

    def _pass_batch(self, frame: WireFrame) -> None:
        began_s = thread_time()
        channel = self._channel if frame.session == self._session else None
        segments: list[tuple[Any, int]] = []
        views = []  # as long as these live, the pool does not give a segment out again
        for size in (frame.body, *frame.parts):
            segment = channel.pool.find(size) if channel is not None else None
            if segment is not None:
                views.append(segment.lease(size))
                self._receive(views[-1])
                segments.append((segment, size))
            elif channel is not None:
                raise MemoryError
            else:  # of an iterator that is gone
                self._receive(memoryview(bytearray(size)))
        if channel is not None:
            try:
                channel.put_parts(segments)
            except OSError:
                pass  # the iterator has gone meanwhile
        self.received_s += thread_time() - began_s
        self.received_bytes += frame.body + sum(frame.parts)

    def _receive(self, memory: memoryview) -> None:
        self._link.receive_into(memory)
        self._heard_at = monotonic()

    def watch(self) -> None:
        """Asked now and then: whether it still shows that it lives."""
        if self.is_alive and monotonic() - self._heard_at > SILENT_S:
            self.end(f"no sign of life for {SILENT_S:.0f} s")

    def end(self, why: str) -> None:
        """It is lost: its channel ends after what had come, so the trainer learns of it."""
        with self._ending:
            if not self.is_alive:
                return
            self.is_alive = False
        self._link.hang_up()
        self._on_end(self, why)
        channel = self._channel
        if channel is not None:
            channel.hang_up()


def _describe(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "its link is cut"
    return f"its connection ended: {os.strerror(error.errno) if error.errno else error}"
