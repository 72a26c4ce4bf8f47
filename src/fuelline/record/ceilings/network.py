"""The network to another host: `serve` there, `probe_peer` here.

One TCP connection a question. The client sends eight bytes: a letter and the seconds. `L` echoes
byte for byte (round trips), `U` takes what comes (upload), `D` sends zeros (download). The server
keeps nothing, sends nothing but zeros, and leaves after a set time.
"""

from __future__ import annotations

import socket
import statistics
import struct
import time
from typing import TYPE_CHECKING

from fuelline.record.ceilings.pace import time_rate
from fuelline.schema.ceilings import Ceiling
from fuelline.schema.errors import InputError, RefusedError
from fuelline.schema.readings import Missing, Reading, Signal

if TYPE_CHECKING:
    from collections.abc import Callable

PORT = 7654
QUESTION = struct.Struct("<c3xf")
CHUNK = 1 << 20
TRIPS = 200
LONGEST_S = 60.0
TIMEOUT_S = 10.0


def probe_peer(host: str, port: int, seconds: float) -> list[Ceiling]:
    """Round trip and bandwidth both ways."""
    try:
        return [
            _ceiling("round_trip", f"round trip to {host}", _ask(host, port, b"L", seconds)),
            _ceiling("upload", f"bytes to {host}", _ask(host, port, b"U", seconds)),
            _ceiling("download", f"bytes from {host}", _ask(host, port, b"D", seconds)),
        ]
    except OSError as error:
        raise InputError(
            f"{host}:{port} does not answer ({error.strerror or error}). The network was not "
            f"measured. Start the other side first: fuelline probe --serve {port}"
        ) from None


def _ask(host: str, port: int, letter: bytes, seconds: float) -> Signal:
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(QUESTION.pack(letter, seconds))
        if letter == b"L":
            return _time_trips(connection)
        act = _sender(connection) if letter == b"U" else _receiver(connection)
        return time_rate(act, seconds, "bytes/s", "probe network")


def _time_trips(connection: socket.socket) -> Signal:
    taken = []
    for _ in range(TRIPS):
        start = time.perf_counter()
        connection.sendall(b"x")
        if not connection.recv(1):
            return Missing(reason="the other side hung up")
        taken.append(time.perf_counter() - start)
    taken.sort()
    return Reading(
        value=statistics.median(taken),
        unit="s",
        low=taken[TRIPS // 20],
        high=taken[-TRIPS // 20],
        count=TRIPS,
        origin="probe network: median, 5th and 95th percentile",
    )


def _sender(connection: socket.socket) -> Callable[[], float | None]:
    block = bytes(CHUNK)
    return lambda: float(connection.send(block))


def _receiver(connection: socket.socket) -> Callable[[], float | None]:
    buffer = bytearray(CHUNK)
    return lambda: float(connection.recv_into(buffer)) or None


def serve(port: int, seconds: float, tell: Callable[[str], None]) -> int:
    """Answer probes of other hosts for so long; returns how many questions came."""
    until = time.monotonic() + seconds
    answered = 0
    try:
        listener = socket.create_server(("", port))
    except OSError as error:
        raise RefusedError(
            f"Port {port} cannot be opened ({error.strerror}). Nothing is served. Try another: "
            f"fuelline probe --serve {port + 1}"
        ) from None
    with listener:
        tell(f"waiting on port {port}; on the other host: fuelline probe --peer {_own_name()}")
        while (left := until - time.monotonic()) > 0:
            listener.settimeout(left)
            try:
                connection, (address, *_) = listener.accept()
            except TimeoutError:
                break
            with connection:
                answered += _answer(connection)
                tell(f"{address} asked")
    return answered


def _answer(connection: socket.socket) -> int:
    """Do what one client asks for; one that leaves as soon as it knows enough was answered."""
    connection.settimeout(TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    answered = 0
    try:
        question = connection.recv(QUESTION.size, socket.MSG_WAITALL)
        if len(question) < QUESTION.size:
            return 0
        letter, seconds = QUESTION.unpack(question)
        answered = 1
        until = time.monotonic() + min(max(seconds, 0.0), LONGEST_S)
        act = _ANSWERS.get(letter)
        while act is not None and act(connection) and (letter != b"D" or time.monotonic() < until):
            pass
    except OSError:
        pass
    return answered


def _echo(connection: socket.socket) -> int:
    word = connection.recv(1)
    return connection.send(word) if word else 0


_ANSWERS: dict[bytes, Callable[[socket.socket], int]] = {
    b"L": _echo,
    b"U": lambda connection: len(connection.recv(CHUNK)),
    b"D": lambda connection: connection.send(bytes(CHUNK)),
}


def _own_name() -> str:
    return socket.gethostname()


def _ceiling(name: str, what: str, signal: Signal) -> Ceiling:
    return Ceiling(group="network", name=name, what=what, signal=signal)
