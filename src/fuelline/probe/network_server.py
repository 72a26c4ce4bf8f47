"""Answers probes of other hosts: one thread that never blocks, so that its end holds.

What strangers can get: before the proof a connection lives for `SHY_S`, is sent 32 bytes
for the 40 that it sent, and is one of `MOST_STRANGERS`; where more come, the oldest goes, so that a
flood delays those who know the token but does not shut them out. Who knows the token is served in
turn, for as long as it asked and `LONGEST_S` at most: two at once would measure each other.
"""

from __future__ import annotations

import hmac
import secrets
import selectors
import socket
import time
from collections import deque
from typing import TYPE_CHECKING

from fuelline.probe.network import (
    CHUNK,
    HELLO_BYTES,
    MAGIC,
    NONCE_BYTES,
    PROOF_BYTES,
    QUESTION,
    name_address,
    prove,
)
from fuelline.schema.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_STRANGERS = 64
MOST_WAITING = 8
SHY_S = 5.0
LONGEST_S = 60.0
GRACE_S = 2.0
"""For what is on its way when the client has measured enough."""
TICK_S = 0.1
"""How late something may end."""
MOST_ECHOES = 10_000
_ZEROS = bytes(CHUNK)
"""What is sent, and not the block that others' bytes are taken into."""


def open_listener(host: str, port: int) -> socket.socket:
    """A socket on one address of this host; on all of them only for `0.0.0.0` and `::`."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(MOST_STRANGERS)
        except BaseException:
            listener.close()
            raise
    except (OSError, UnicodeError) as error:
        raise RefusedError(
            f"{name_address(host, port)} cannot be opened "
            f"({getattr(error, 'strerror', None) or error}). Nothing is served. Name an address of "
            f"this host (`ip address` lists them), or another port: fuelline probe --serve "
            f"{name_address(host, port + 1 if port < 65535 else port - 1)}"
        ) from None
    listener.settimeout(0)
    return listener


def find_own_address() -> str:
    """The address that other hosts are likely to reach; a UDP socket's `connect` sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        try:
            route.connect(("192.0.2.1", 9))  # of RFC 5737, nobody's
        except OSError:
            return "ADDRESS"
        return str(route.getsockname()[0])


def serve(
    listener: socket.socket, token: str, seconds: float, report: Callable[[str], None]
) -> int:
    """Answer for this long, whatever clients do; how many questions were answered."""
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        server = _Server(listener, selector, token, report)
        try:
            while (left := until - time.monotonic()) > 0:
                server.act(min(left, TICK_S))
        finally:
            server.close()
    return server.answered


class _Client:
    """A connection, what came over it so far, and when it ends."""

    def __init__(self, connection: socket.socket, host: str) -> None:
        self.connection, self.host = connection, host
        self.until = time.monotonic() + SHY_S
        self.received = b""
        self.nonces = self.question = b""
        self.echoes = 0

    def take(self, size: int) -> bool:
        """Whether this many bytes are there by now; no more are taken than were asked for."""
        more = self.connection.recv(size - len(self.received))
        if not more:
            raise ConnectionResetError
        self.received += more
        return len(self.received) == size


class _Server:
    """All connections. A stranger becomes one that waits, and then the one that is served."""

    def __init__(
        self,
        listener: socket.socket,
        selector: selectors.BaseSelector,
        token: str,
        report: Callable[[str], None],
    ) -> None:
        self.answered = 0
        self._listener, self._selector, self._token, self._report = (
            listener,
            selector,
            token,
            report,
        )
        self._strangers: dict[_Client, None] = {}  # the oldest first
        self._waiting: deque[_Client] = deque()
        self._served: _Client | None = None
        self._block = memoryview(bytearray(CHUNK))
        selector.register(listener, selectors.EVENT_READ)

    def act(self, seconds: float) -> None:
        """Do what there is to do, and wait for it no longer than this."""
        for key, _ in self._selector.select(seconds):
            client: _Client | None = key.data
            if client is None:
                self._accept()
            elif client.connection.fileno() >= 0:  # not dropped in this round
                self._attend(client)
        now = time.monotonic()
        served = [] if self._served is None else [self._served]
        for late in [each for each in (*self._strangers, *served) if each.until < now]:
            self._drop(late)
        if self._served is None and self._waiting:
            self._start(self._waiting.popleft())

    def close(self) -> None:
        """Whoever is still there is left."""
        served = [] if self._served is None else [self._served]
        for client in (*self._strangers, *self._waiting, *served):
            client.connection.close()

    def _accept(self) -> None:
        try:
            connection, (host, *_) = self._listener.accept()
        except OSError:  # it left at once, or there are too few descriptors
            self._drop_oldest()
            return
        connection.settimeout(0)
        if len(self._strangers) >= MOST_STRANGERS:
            self._drop_oldest()
        client = _Client(connection, host)
        self._strangers[client] = None
        self._selector.register(connection, selectors.EVENT_READ, client)

    def _drop_oldest(self) -> None:
        oldest = next(iter(self._strangers), None)
        if oldest is not None:
            self._drop(oldest)

    def _drop(self, client: _Client) -> None:
        if client is self._served or client in self._strangers:
            self._selector.unregister(client.connection)
        self._strangers.pop(client, None)
        self._served = None if client is self._served else self._served
        client.connection.close()

    def _attend(self, client: _Client) -> None:
        try:
            if client is self._served:
                goes_on = _ANSWERS[client.question[:1]](client, self._block)
            else:
                goes_on = self._listen_to(client)
        except BlockingIOError:
            return
        except OSError:
            goes_on = False
        if not goes_on:
            self._drop(client)

    def _listen_to(self, client: _Client) -> bool:
        """A stranger's hello, then its question; False ends it."""
        if not client.nonces:
            if client.take(HELLO_BYTES):
                ours = secrets.token_bytes(NONCE_BYTES)
                client.nonces = client.received.removeprefix(MAGIC) + ours
                is_hello = client.received.startswith(MAGIC)
                client.received = b""
                return is_hello and client.connection.send(ours) == NONCE_BYTES
        elif client.take(QUESTION.size + PROOF_BYTES):
            client.question = client.received[: QUESTION.size]
            proof = prove(self._token, b"client", client.nonces, client.question)
            is_known = hmac.compare_digest(client.received[QUESTION.size :], proof)
            if not is_known or client.question[:1] not in _ANSWERS:
                return False
            return self._queue(client)
        return True

    def _queue(self, client: _Client) -> bool:
        if len(self._waiting) >= MOST_WAITING:
            return False
        self._selector.unregister(client.connection)
        del self._strangers[client]
        self._waiting.append(client)
        return True

    def _start(self, client: _Client) -> None:
        """Its turn: our proof is the sign for it."""
        letter, seconds = QUESTION.unpack(client.question)
        asked = min(max(0.0, seconds), LONGEST_S)  # nothing for what is not a number
        client.until = time.monotonic() + asked + GRACE_S
        connection = client.connection
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.send(prove(self._token, b"server", client.nonces, client.question))
        except OSError:  # it did not wait for its turn
            connection.close()
            return
        self._served = client
        ready = selectors.EVENT_WRITE if letter == b"D" else selectors.EVENT_READ
        self._selector.register(connection, ready, client)
        self.answered += 1
        self._report(f"{client.host} asked for {_NAMES[letter]}")


def _echo(client: _Client, _: memoryview) -> bool:
    word = client.connection.recv(1)
    client.echoes += 1
    return bool(word) and client.connection.send(word) == 1 and client.echoes < MOST_ECHOES


def _swallow(client: _Client, block: memoryview) -> bool:
    return client.connection.recv_into(block) > 0


def _pour(client: _Client, _: memoryview) -> bool:
    return client.connection.send(_ZEROS) > 0


_ANSWERS: dict[bytes, Callable[[_Client, memoryview], bool]] = {
    b"L": _echo,
    b"U": _swallow,
    b"D": _pour,
}
_NAMES = {b"L": "round trips", b"U": "an upload", b"D": "a download"}
