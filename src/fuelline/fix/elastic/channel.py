"""The line between the trainer and one worker: a pair of local sockets that pass whole messages.

Torch's queues hand each message to a thread, and each tensor's descriptor is fetched by a second
connection with a handshake. Here a message is sent by whoever has it, its descriptors with it, in
one system call: nothing is locked, so a process that is killed takes nothing along. What the socket
has no room for is left to a thread, which is started when that happens first: `send` never waits.
Order is kept. A worker's batches, and messages that are too long for a packet, are in shared memory
that is used again (segments): a packet says where. Standard library only.

Also here: raises the process's soft limit of open files when it comes near; the hard one is not
touched.

Each tensor that waits to be taken holds a descriptor. Standard library only.
"""

from __future__ import annotations

import array
import errno
import io
import os
import resource
import select
import socket
import struct
import threading
from collections import deque
from multiprocessing import context
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


__all__ = ["SocketChannel", "find_parts", "find_receiver"]

FRAGMENT_BYTES = 32_768
"""A packet must be smaller than the socket's buffer, which is 208 kB unless the host says less."""
MOST_DESCRIPTORS = 250
"""In one packet; the kernel takes 253 (SCM_MAX_FD, unix(7))."""
RETRY_S = 0.01
_CONTROL_BYTES = socket.CMSG_SPACE(MOST_DESCRIPTORS * array.array("i").itemsize)
_LAST, _MORE, _STORED, _PARTED = b"\0", b"\1", b"\2", b"\3"
_PLACE = struct.Struct("<IQ?")
"""Of a stored message: the segment's number, bytes, and whether its descriptor is the last one.
Of a message in parts there is one for each, itself included, and descriptors in their order."""
MOST_PARTS = 128
_LATER = {errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM}
"""No room now: for more descriptors of this user under way than the sender's own limit of open
files (unix(7)), or in the kernel's memory. A send that may wait does not wait for these."""
_FULL = {errno.EAGAIN, *_LATER}
_Packet = tuple[bytes, Any, list[int]]
"""What it is of its message, content, and descriptors, which it owns."""
_loading = threading.local()


class SocketChannel:
    """One end; one thread sends, and one, maybe another, receives."""

    def __init__(self, end: socket.socket | None = None) -> None:
        if end is not None:
            self._end = end
        self.pool: Any = None
        """What this end sends batches in (`SegmentPool`); None for an end that sends none."""
        self.table: Any = None
        """Where the other end's are found (`SegmentTable`)."""
        self._backlog: _Backlog | None = None
        self._poll: select.poll | None = None
        self._buffer = bytearray()
        self._parts: list[bytes] = []
        self._descriptors: list[int] = []

    def connect(self) -> SocketChannel:
        """The other end; made when its worker is, so that no other worker inherits it."""
        self._end, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if self._end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < 2 * FRAGMENT_BYTES:
            raise OSError(errno.EMSGSIZE, "net.core.wmem_default is too small for a local socket")
        return SocketChannel(far)

    def fileno(self) -> int:
        """To wait for, with others."""
        return self._end.fileno()

    def put(self, message: Any) -> None:
        """Send, as a queue does; no error if the other end is gone, as with a queue."""
        self._put_packets(_pack(message, self.pool))

    def put_pickled(self, content: memoryview) -> None:
        """Send a message that has no descriptors."""
        self._put_packets(_cut(content, [], None))

    def put_parts(self, segments: list[tuple[Any, int]]) -> None:
        """Send a message that was pickled elsewhere, and its parts, all in segments of the pool."""
        places, descriptors = bytearray(), []
        for segment, size in segments:
            places += _PLACE.pack(segment.number, size, segment.fd >= 0)
            descriptors += [os.dup(segment.fd)] if segment.fd >= 0 else []
            self.pool.send(segment)
        self.pool.end_message(is_packed=True)
        self._put_packets(deque([(_PARTED, bytes(places), descriptors)]))

    def _put_packets(self, packets: deque[_Packet]) -> None:
        if self._backlog is None or not self._backlog.unsent:
            while packets and self._send(packets[0]):
                _close(packets.popleft()[2])
        if packets:
            self._backlog = self._backlog or _Backlog(self._end)
            self._backlog.take(packets)

    def _send(self, packet: _Packet) -> bool:
        """Whether it is done with; the other end may be gone."""
        try:
            _send(self._end, packet, socket.MSG_DONTWAIT)
        except (BrokenPipeError, ConnectionError):
            return True
        except OSError as refusal:
            if refusal.errno not in _FULL:
                raise
            return False
        return True

    def wait(self, timeout_s: float | None) -> bool:
        """Whether there is something to receive, or the other end is gone."""
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self._end.fileno(), select.POLLIN)
        return bool(self._poll.poll(None if timeout_s is None else 1e3 * timeout_s))

    def receive(self) -> Any:
        """A message; BlockingIOError if none is there as a whole, EOFError after the last."""
        content = self.receive_pickled()
        descriptors, self._descriptors = self._descriptors, []
        return self._load(content, descriptors)

    def receive_pickled(self) -> Any:
        """Likewise, as it came; valid until the next one."""
        while not self._take_packet():
            pass
        content = memoryview(self._buffer)[1 : self._size]
        if not self._parts:
            return content
        parts, self._parts = self._parts, []
        return b"".join([*parts, content])

    def _load(self, content: Any, descriptors: list[int]) -> Any:
        """The message; what it did not take of its descriptors is closed."""
        _loading.descriptors, _loading.table, _loading.parts = descriptors, self.table, []
        try:
            if self._buffer[0] == _STORED[0]:
                number, size, is_new = _PLACE.unpack(content)
                content = self.table.open(number, descriptors.pop() if is_new else None, size)
            elif self._buffer[0] == _PARTED[0]:
                content, *_loading.parts = self._open_parts(content, descriptors)
            return ForkingPickler.loads(content)
        finally:
            _loading.descriptors, _loading.table, _loading.parts = [], None, []
            _close(fd for fd in descriptors if fd >= 0)

    def _open_parts(self, content: Any, descriptors: list[int]) -> list[memoryview]:
        opened = []
        for number, size, is_new in _PLACE.iter_unpack(content):
            opened.append(self.table.open(number, descriptors.pop(0) if is_new else None, size))
        return opened

    def _take_packet(self) -> bool:
        """Whether it is the last one of its message."""
        if not self._buffer:
            self._buffer = bytearray(FRAGMENT_BYTES + 1)
        flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        while True:
            try:
                received = self._end.recvmsg_into([self._buffer], _CONTROL_BYTES, flags)
                break
            except ConnectionResetError:
                continue  # once, by an end that left messages unread; what it sent comes now
        self._size, controls, how, _ = received
        for _, _, content in controls:
            self._descriptors += array.array("i", content)
        if how & socket.MSG_CTRUNC:
            _close(self._descriptors)
            self._descriptors, self._parts = [], []
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if not self._size:
            raise EOFError
        if self._buffer[0] != _MORE[0]:
            return True
        self._parts.append(bytes(memoryview(self._buffer)[1 : self._size]))
        return False

    def hang_up(self) -> None:
        """End it for the other side and for a thread that waits here; what was sent still comes."""
        try:
            self._end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended already

    def cancel_join_thread(self) -> None:
        """As a queue does; the thread never holds up the process."""

    def close(self) -> None:
        """As a queue does."""
        self._end.close()
        if self.table is not None:
            self.table.close()


class _Backlog:
    """Sends what there was no room for."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._todo: deque[_Packet] = deque()
        self._changed = threading.Condition()
        self.unsent = 0
        """Packets that came here and are not under way; only `take` makes it more."""
        threading.Thread(target=self._run, daemon=True, name="fuelline-line").start()

    def take(self, packets: deque[_Packet]) -> None:
        """Send these as soon as there is room."""
        with self._changed:
            self._todo.extend(packets)
            self.unsent += len(packets)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._todo:
                    self._changed.wait()
                packet = self._todo.popleft()
            self._send(packet)
            _close(packet[2])
            with self._changed:
                self.unsent -= 1

    def _send(self, packet: _Packet) -> None:
        while True:
            try:
                _send(self._end, packet, 0)
            except OSError as refusal:
                if refusal.errno in _LATER:
                    if refusal.errno != errno.ETOOMANYREFS or make_room(MOST) is None:
                        select.select([], [], [], RETRY_S)
                    continue
                # the other end is gone, or this one: there is nobody to send to
            return


def _send(end: socket.socket, packet: _Packet, flags: int) -> None:
    mark, part, fds = packet
    controls = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    end.sendmsg([mark, part], controls, flags)


class _Enclosed:
    """Collects the descriptors of a message: multiprocessing asks the process being spawned."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []

    def duplicate_for_child(self, fd: int) -> int:
        """The place of a descriptor; copied, since its owner may be gone when it is sent."""
        self.descriptors.append(os.dup(fd))
        return len(self.descriptors) - 1

    @staticmethod
    def DupFd(place: int) -> _DescriptorSlot:  # noqa: N802 - the name in multiprocessing
        """What is pickled for it."""
        return _DescriptorSlot(place)


class _DescriptorSlot:
    """Stands for a descriptor in a message."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __reduce__(self) -> tuple[Any, tuple[int]]:
        return _DescriptorSlot, (self._place,)

    def detach(self) -> int:
        """The descriptor, which is now the caller's to close."""
        fds = _loading.descriptors
        fd: int = fds[self._place]
        fds[self._place] = -1
        return fd


def find_receiver() -> Any:
    """Where the segments of the message that is being loaded are found; pickle's functions ask."""
    return _loading.table


def find_parts() -> list[memoryview]:
    """What came beside the message that is being loaded."""
    parts: list[memoryview] = _loading.parts
    return parts


def _pack(message: Any, pool: Any = None) -> deque[_Packet]:
    """In packets: most messages are one."""
    enclosed, is_packed = _Enclosed(), False
    context.set_spawning_popen(enclosed)  # type: ignore[arg-type]
    try:
        content = _dump(message, {} if pool is None else pool.reducers)
        packets = _cut(content, enclosed.descriptors, pool)
        is_packed = True
    except BaseException:
        _close(enclosed.descriptors)
        raise
    finally:
        context.set_spawning_popen(None)
        if pool is not None:
            pool.end_message(is_packed=is_packed)
    return packets


def _dump(message: Any, reducers: Mapping[type, Callable[[Any], Any]]) -> memoryview:
    content = io.BytesIO()
    pickler = ForkingPickler(content)
    pickler.dispatch_table.update(reducers)
    pickler.dump(message)
    return content.getbuffer()


def _cut(content: memoryview, fds: list[int], pool: Any) -> deque[_Packet]:
    if len(content) <= FRAGMENT_BYTES and len(fds) <= MOST_DESCRIPTORS:
        return deque([(_LAST, content, fds)])
    place = pool.store(content) if pool is not None and len(fds) < MOST_DESCRIPTORS else None
    if place is None:
        return _split(bytes(content), fds)
    number, fd = place
    if fd >= 0:
        fds.append(os.dup(fd))
    return deque([(_STORED, _PLACE.pack(number, len(content), fd >= 0), fds)])


def _split(content: bytes, fds: list[int]) -> deque[_Packet]:
    count = max(-(-len(content) // FRAGMENT_BYTES), -(-len(fds) // MOST_DESCRIPTORS))
    packets: deque[_Packet] = deque()
    for number in range(count):
        at, first = number * FRAGMENT_BYTES, number * MOST_DESCRIPTORS
        own = fds[first : first + MOST_DESCRIPTORS]
        mark = _LAST if number == count - 1 else _MORE
        packets.append((mark, content[at : at + FRAGMENT_BYTES], own))
    return packets


def _close(descriptors: Iterable[int]) -> None:
    for fd in descriptors:
        os.close(fd)


NEAR = 0.7
"""Of the soft limit: a burst of batches takes the rest."""
MOST = 65_536
"""Programs that loop over all possible descriptors take seconds with a million of them."""


def make_room(in_use: int | None = None) -> tuple[int, int] | None:
    """The limit before and after, if it had to be raised and could be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = len(os.listdir("/proc/self/fd")) if in_use is None else in_use  # noqa: PTH208
    wanted = min(4 * soft, MOST, hard if hard != resource.RLIM_INFINITY else MOST)
    if count < NEAR * soft or wanted <= soft:
        return None
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft, wanted
