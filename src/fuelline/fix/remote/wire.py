"""Frames between the helper process and a worker on another host, over TCP.

    kind, session, number of parts, bytes of the body | bytes of each part | body | parts

A connection counts once both ends have shown that they know the job's secret, which Ray (or
whoever starts the worker) has brought there. What travels is not encrypted, as in Ray itself.
A link that is cut is noticed by the kernel's own probes, in idle times as well; a peer that is
stopped or hangs by its missing pulse. Standard library only.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
import threading
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FrameKind", "WireFrame", "WorkerLink", "meet_helper", "meet_worker"]

CUT_MS = 3000
"""Without an answer from the other host's kernel: then the link is cut."""
PROBE_S = 1
"""Of silence, until the kernel asks whether the other host is there."""
PULSE_S = 1.0
SILENT_S = 10.0
"""Without a pulse: the worker is stopped or hangs. Longer than code may hold Python's lock."""
MEETING_S = 10.0
_PROOF_BYTES = hashlib.sha256().digest_size
_HEAD = struct.Struct("<BIIQ")
_SIZE = struct.Struct("<Q")
_MOST_PIECES = 64
"""Buffers in one system call (IOV_MAX is 1024)."""


class FrameKind(IntEnum):
    """What a frame is."""

    LOAD = 1
    """To the worker: dataset, collate function, code, and what the environment has to be."""
    LOADED = 2
    CHECK = 3
    """To the worker: prepare the batches that came with the dataset."""
    CHECKED = 4
    FLOOD = 5
    """To the worker: send so many bytes, to measure the line."""
    FLOODED = 6
    OPEN = 7
    """To the worker: an iterator begins."""
    TASK = 8
    """What torch puts into a worker's queue, pickled."""
    MESSAGE = 9
    """What torch's worker puts into the queue of results, pickled, its storages as parts."""
    END = 10
    """To the worker: the iterator is gone."""
    PULSE = 11


class WireFrame(NamedTuple):
    """The head of a frame; its content comes next."""

    kind: int
    session: int
    body: int
    """Bytes; of the parts likewise."""
    parts: tuple[int, ...]


class WorkerLink:
    """One end of a connection; any thread sends, one receives."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._sending = threading.Lock()
        for level, name, value in (
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_S),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_S),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, CUT_MS),
        ):
            end.setsockopt(level, name, value)

    def send(
        self,
        kind: FrameKind,
        body: bytes | memoryview = b"",
        parts: Sequence[memoryview] = (),
        session: int = 0,
    ) -> None:
        """All of it, or an OSError."""
        head = _HEAD.pack(kind, session, len(parts), len(body))
        sizes = b"".join(_SIZE.pack(part.nbytes) for part in parts)
        with self._sending:
            self._send_all([memoryview(head + sizes), memoryview(body), *parts])

    def pulse(self) -> None:
        """Show that this process runs, unless something is being sent, which shows it as well."""
        if self._sending.acquire(blocking=False):
            try:
                self._send_all([memoryview(_HEAD.pack(FrameKind.PULSE, 0, 0, 0))])
            finally:
                self._sending.release()

    def _send_all(self, buffers: list[memoryview]) -> None:
        left = [each.cast("B") for each in buffers if each.nbytes]
        while left:
            sent = self._end.sendmsg(left[:_MOST_PIECES])
            while left and sent >= left[0].nbytes:
                sent -= left.pop(0).nbytes
            if sent:
                left[0] = left[0][sent:]

    def receive_head(self) -> WireFrame:
        """The next frame; EOFError after the last."""
        kind, session, count, body = _HEAD.unpack(self.receive(_HEAD.size))
        sizes = self.receive(_SIZE.size * count) if count else b""
        return WireFrame(kind, session, body, tuple(size for (size,) in _SIZE.iter_unpack(sizes)))

    def receive(self, size: int) -> bytearray:
        """So many bytes."""
        content = bytearray(size)
        self.receive_into(memoryview(content))
        return content

    def receive_into(self, memory: memoryview) -> None:
        """As many as it holds."""
        while memory.nbytes:
            count = self._end.recv_into(memory)
            if not count:
                raise EOFError
            memory = memory[count:]

    def hang_up(self) -> None:
        """End it, also for a thread that is receiving."""
        try:
            self._end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended already
        self._end.close()


def meet_helper(address: tuple[str, int], secret: bytes, number: int) -> WorkerLink:
    """Connect, as worker of this number; ConnectionError if the other side is not ours."""
    end = socket.create_connection(address, MEETING_S)
    try:
        return _meet(end, secret, number)
    except (OSError, EOFError):
        end.close()
        raise


def _meet(end: socket.socket, secret: bytes, number: int) -> WorkerLink:
    link, own = WorkerLink(end), os.urandom(_PROOF_BYTES)
    asked = bytes(link.receive(_PROOF_BYTES))
    end.sendall(struct.pack("<I", number) + _prove(secret, b"worker", asked) + own)
    if not hmac.compare_digest(bytes(link.receive(_PROOF_BYTES)), _prove(secret, b"helper", own)):
        raise ConnectionError("the other side does not know the job's secret")
    end.settimeout(None)
    return link


def meet_worker(end: socket.socket, secret: bytes) -> tuple[int, WorkerLink]:
    """A worker that has connected, and its number; ConnectionError if it is not ours."""
    end.settimeout(MEETING_S)
    link, own = WorkerLink(end), os.urandom(_PROOF_BYTES)
    end.sendall(own)
    (number,) = struct.unpack("<I", link.receive(4))
    is_ours = hmac.compare_digest(bytes(link.receive(_PROOF_BYTES)), _prove(secret, b"worker", own))
    asked = bytes(link.receive(_PROOF_BYTES))
    if not is_ours:
        raise ConnectionError("it does not know the job's secret")
    end.sendall(_prove(secret, b"helper", asked))
    end.settimeout(None)
    return number, link


def _prove(secret: bytes, role: bytes, asked: bytes) -> bytes:
    return hmac.digest(secret, role + asked, "sha256")
