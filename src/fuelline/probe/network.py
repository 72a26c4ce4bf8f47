"""The network to another host: `serve` there, `probe_peer` here, with a token that both know.

One TCP connection a question, and the client speaks first:

    client   HELLO: magic, nonce                        40 bytes
    server   its own nonce                              32
    client   question: letter, seconds; proof of it     40
    server   proof, when it is this question's turn     32

A proof is an HMAC of both nonces and the question under the token, which never travels itself and
cannot be replayed. Then `L` echoes byte for byte (round trips), `U` takes what comes (upload), `D`
sends zeros (download). The server is in `network_server`.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import statistics
import struct
import time
from typing import TYPE_CHECKING

from fuelline.probe.pace import time_rate
from fuelline.schema.diagnosis.ceilings import Ceiling
from fuelline.schema.errors import InputError
from fuelline.schema.readings import Missing, Reading, Signal

if TYPE_CHECKING:
    from collections.abc import Callable

PORT = 7654
MAGIC = b"FUELLN\x02\n"
NONCE_BYTES = 32
HELLO_BYTES = len(MAGIC) + NONCE_BYTES
QUESTION = struct.Struct("<c3xf")
PROOF_BYTES = 32
"""Of SHA-256."""
CHUNK = 1 << 20
TRIPS = 200
TIMEOUT_S = 10.0


def prove(token: str, side: bytes, nonces: bytes, question: bytes) -> bytes:
    """That this side knows the token; the side is in it, so that no proof can be sent back."""
    return hmac.digest(token.encode("utf-8", "surrogateescape"), side + nonces + question, "sha256")


def name_address(host: str, port: int) -> str:
    """As `--peer` takes it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def probe_peer(host: str, port: int, token: str, seconds: float) -> list[Ceiling]:
    """Round trip and bandwidth both ways."""
    where = name_address(host, port)
    try:
        return [
            _ceiling("round_trip", f"round trip to {host}", _ask(host, port, token, b"L", seconds)),
            _ceiling("upload", f"bytes to {host}", _ask(host, port, token, b"U", seconds)),
            _ceiling("download", f"bytes from {host}", _ask(host, port, token, b"D", seconds)),
        ]
    except (OSError, UnicodeError) as error:  # the latter: a name that no host can have
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{where} does not answer ({reason}). Nothing was measured. Start the other side "
            f"first, on an address that this host can reach: fuelline probe --serve ADDRESS:{port}"
        ) from None


def _ask(host: str, port: int, token: str, letter: bytes, seconds: float) -> Signal:
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _introduce(connection, name_address(host, port), token, QUESTION.pack(letter, seconds))
        if letter == b"L":
            return _time_trips(connection, seconds)
        act = _sender(connection) if letter == b"U" else _receiver(connection)
        return time_rate(act, seconds, "bytes/s", "probe network")


def _introduce(connection: socket.socket, where: str, token: str, question: bytes) -> None:
    """Prove that we know the token, and let the other side do so."""
    ours = secrets.token_bytes(NONCE_BYTES)
    connection.sendall(MAGIC + ours)
    theirs = _receive(connection, NONCE_BYTES)
    if len(theirs) < NONCE_BYTES:
        raise InputError(
            f"{where} hangs up: it is not `fuelline probe --serve`, is another version, or is too "
            "busy. Nothing was measured. See what it prints there, and try again."
        )
    connection.sendall(question + prove(token, b"client", ours + theirs, question))
    proof = _receive(connection, PROOF_BYTES)
    if not hmac.compare_digest(proof, prove(token, b"server", ours + theirs, question)):
        raise InputError(
            f"{where} has a different token. Nothing was measured. Use the line that "
            "`fuelline probe --serve` printed there; every start makes a new token."
        )


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    """As many bytes, or fewer if the other side hangs up.

    MSG_WAITALL would return with the first piece: a socket with a timeout does not block.
    """
    received = b""
    while len(received) < size_bytes:
        more = connection.recv(size_bytes - len(received))
        if not more:
            break
        received += more
    return received


def _time_trips(connection: socket.socket, seconds: float) -> Signal:
    until = time.monotonic() + seconds
    taken: list[float] = []
    while len(taken) < TRIPS and (not taken or time.monotonic() < until):
        start = time.perf_counter()
        connection.sendall(b"x")
        if not connection.recv(1):
            return Missing(reason="the other side hung up")
        taken.append(time.perf_counter() - start)
    taken.sort()
    return Reading(
        value=statistics.median(taken),
        unit="s",
        low=taken[len(taken) // 20],
        high=taken[-1 - len(taken) // 20],
        level=90,
        count=len(taken),
        origin="probe network: median, 5th and 95th percentile",
    )


def _sender(connection: socket.socket) -> Callable[[], float | None]:
    block = bytes(CHUNK)
    return lambda: float(connection.send(block))


def _receiver(connection: socket.socket) -> Callable[[], float | None]:
    buffer = bytearray(CHUNK)
    return lambda: float(connection.recv_into(buffer)) or None


def _ceiling(name: str, what: str, signal: Signal) -> Ceiling:
    return Ceiling(group="network", name=name, what=what, signal=signal)
