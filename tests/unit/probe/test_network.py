"""The network is measured with hosts that know the token; nobody else gets anything, or stays."""

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from fuelline.probe import network, network_server
from fuelline.probe.network import MAGIC, NONCE_BYTES, QUESTION, probe_peer, prove
from fuelline.probe.network_server import open_listener, serve
from fuelline.schema.errors import InputError, RefusedError
from fuelline.schema.readings import Reading

pytestmark = pytest.mark.integration

KEY = "a token of the tests"


class Server(threading.Thread):
    """`serve` on a free port of one address."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__(daemon=True)
        self.listener = open_listener(host, 0)
        self.port = int(self.listener.getsockname()[1])
        self.told: list[str] = []
        self.answered: int | None = None

    def run(self) -> None:
        with self.listener:
            self.answered = serve(self.listener, KEY, 60.0, self.told.append)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listener.getsockname()[:2], 10)


class Stopping:
    """A clock that a test can put forward, so that a server ends when the test does."""

    def __init__(self) -> None:
        self.is_over = False
        self._monotonic = time.monotonic

    def monotonic(self) -> float:
        return self._monotonic() + 1e6 * self.is_over


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Stopping:
    """The server's."""
    found = Stopping()
    monkeypatch.setattr(network_server.time, "monotonic", found.monotonic)
    return found


@pytest.fixture
def server(clock: Stopping) -> Iterator[Server]:
    found = Server()
    found.start()
    yield found
    clock.is_over = True
    found.join(10)
    assert not found.is_alive()


def say_hello(connection: socket.socket) -> bytes:
    """Both nonces."""
    ours = os.urandom(NONCE_BYTES)
    connection.sendall(MAGIC + ours)
    return ours + network._receive(connection, NONCE_BYTES)


def read_all(connection: socket.socket) -> bytes:
    """All that comes until the other side closes; a reset counts as such."""
    content = bytearray()
    try:
        while piece := connection.recv(4096):
            content += piece
    except ConnectionResetError:
        pass
    return bytes(content)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_two_hosts_measure_the_network_between_them(host: str, clock: Stopping) -> None:
    try:
        server = Server(host)
    except RefusedError:
        pytest.skip(f"no {host} here")
    server.start()
    ceilings = probe_peer(host, server.port, KEY, 0.1)
    clock.is_over = True
    server.join(10)
    assert not server.is_alive()
    assert [each.name for each in ceilings] == ["round_trip", "upload", "download"]
    for each in ceilings:
        assert isinstance(each.signal, Reading)
        each.signal.check()
    assert server.answered == 3
    assert all("asked for" in words for words in server.told)


def test_a_wrong_token_is_told_and_gets_nothing(server: Server) -> None:
    with pytest.raises(InputError, match="different token"):
        probe_peer("127.0.0.1", server.port, "a token of nobody", 0.1)
    assert server.told == []


def test_the_token_never_travels(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = b""
    sendall = socket.socket.sendall

    def note(self: socket.socket, content: bytes) -> None:
        nonlocal sent
        sent += content
        sendall(self, content)

    monkeypatch.setattr(network.socket.socket, "sendall", note)
    probe_peer("127.0.0.1", server.port, KEY, 0.1)
    assert MAGIC in sent
    assert KEY.encode() not in sent


def test_a_server_that_does_not_know_the_token_is_not_believed() -> None:
    """One that plays the client's own proof back, for example."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def mirror() -> None:
            connection, _ = listener.accept()
            with connection:
                hello = network._receive(connection, network.HELLO_BYTES)
                connection.sendall(hello[len(MAGIC) :])
                proof = network._receive(connection, QUESTION.size + 32)
                connection.sendall(proof[QUESTION.size :])

        thread = threading.Thread(target=mirror)
        thread.start()
        with pytest.raises(InputError, match="different token"):
            probe_peer("127.0.0.1", port, KEY, 0.1)
        thread.join()


def test_an_answer_that_comes_in_pieces_is_put_together() -> None:
    question = QUESTION.pack(b"L", 0.1)
    ours, theirs = socket.socketpair()

    def answer() -> None:
        hello = network._receive(theirs, network.HELLO_BYTES)
        nonces = hello[len(MAGIC) :] + bytes(NONCE_BYTES)
        _send_slowly(theirs, bytes(NONCE_BYTES))
        network._receive(theirs, QUESTION.size + network.PROOF_BYTES)
        _send_slowly(theirs, prove(KEY, b"server", nonces, question))

    thread = threading.Thread(target=answer)
    thread.start()
    with ours, theirs:
        ours.settimeout(10)
        network._introduce(ours, "there", KEY, question)
        thread.join()


def _send_slowly(connection: socket.socket, content: bytes) -> None:
    connection.sendall(content[:5])
    time.sleep(0.1)
    connection.sendall(content[5:])


def test_a_proof_cannot_be_replayed(server: Server) -> None:
    question = QUESTION.pack(b"D", 1.0)
    with server.connect() as first:
        nonces = say_hello(first)
        proof = question + prove(KEY, b"client", nonces, question)
        first.sendall(proof)
        assert first.recv(1)
    with server.connect() as second:
        second.sendall(MAGIC + nonces[:NONCE_BYTES])
        network._receive(second, NONCE_BYTES)
        second.sendall(proof)
        assert read_all(second) == b""


@pytest.mark.parametrize(
    "words",
    [
        struct.pack("<c3xf", b"D", 60.0) * 5,  # what clients asked before there were tokens
        b"GET / HTTP/1.1\r\nHost: node2\r\nAccept: */*\r\n\r\n",
        MAGIC + bytes(NONCE_BYTES) + QUESTION.pack(b"D", 60.0) + bytes(32),
        MAGIC + bytes(NONCE_BYTES) + b"\xff" * 4096,
    ],
)
def test_a_stranger_never_gets_more_than_it_sends(server: Server, words: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(words)
        assert len(read_all(connection)) < min(len(words), network.HELLO_BYTES)
    assert server.told == []


def test_a_server_is_silent_before_it_is_asked(server: Server) -> None:
    with server.connect() as connection:
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)


def test_a_flood_of_silent_connections_does_not_shut_out_who_knows_the_token(
    server: Server,
) -> None:
    with ExitStack() as held:
        for _ in range(3 * network_server.MOST_STRANGERS):
            held.enter_context(server.connect())
        ceilings = probe_peer("127.0.0.1", server.port, KEY, 0.1)
    assert all(isinstance(each.signal, Reading) for each in ceilings)


def test_who_says_nothing_is_dropped(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_server, "SHY_S", 0.05)
    with server.connect() as silent, server.connect() as slow:
        slow.sendall(MAGIC[:3])
        assert read_all(silent) == b""
        assert read_all(slow) == b""


def ask(server: Server, letter: bytes, seconds: float) -> socket.socket:
    """A connection that is being served."""
    connection = server.connect()
    question = QUESTION.pack(letter, seconds)
    connection.sendall(question + prove(KEY, b"client", say_hello(connection), question))
    assert len(network._receive(connection, 32)) == 32
    return connection


@pytest.mark.parametrize("letter", [b"L", b"U", b"D"])
@pytest.mark.parametrize("seconds", [1e30, float("inf"), float("nan"), -1.0])
def test_nobody_is_served_for_longer_than_is_allowed(
    server: Server, monkeypatch: pytest.MonkeyPatch, letter: bytes, seconds: float
) -> None:
    monkeypatch.setattr(network_server, "LONGEST_S", 0.05)
    monkeypatch.setattr(network_server, "GRACE_S", 0.05)
    with ask(server, letter, seconds) as connection:
        assert set(read_all(connection)) <= {0}


def test_a_download_has_nothing_of_an_upload_in_it(server: Server) -> None:
    with ask(server, b"U", 1.0) as connection:
        connection.sendall(b"secret" * 10_000)
    with ask(server, b"D", 1.0) as connection:
        assert network._receive(connection, 1 << 16) == bytes(1 << 16)


@pytest.mark.parametrize("letter", [b"", b"L", b"U", b"D"])
def test_the_end_holds_whatever_clients_do(letter: bytes, clock: Stopping) -> None:
    server = Server()
    server.start()
    with ExitStack() as held:
        for _ in range(5):
            held.enter_context(server.connect())
        if letter:
            held.enter_context(ask(server, letter, 60.0))  # and never reads nor leaves
        clock.is_over = True
        server.join(30)
        assert not server.is_alive()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port), 10)


def test_a_peer_that_trickles_does_not_hold_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round trips end after the seconds that were asked for, be they as many as planned or not."""
    here, there = socket.socketpair()
    with here, there:
        there.sendall(bytes(5))
        ticks = iter(range(100))
        monkeypatch.setattr(network.time, "monotonic", lambda: float(next(ticks)))
        signal_ = network._time_trips(here, 3.0)
    assert isinstance(signal_, Reading)
    signal_.check()
    assert signal_.count == 3


def test_a_peer_that_does_not_answer_is_told_with_the_command_to_start_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(InputError, match=f"probe --serve ADDRESS:{port}"):
        probe_peer("127.0.0.1", port, KEY, 0.1)
    with pytest.raises(InputError, match="does not answer"):
        probe_peer("a" * 70, port, KEY, 0.1)


@pytest.mark.parametrize("host", ["192.0.2.1", "a" * 70, "nowhere.invalid"])
def test_an_address_of_another_host_is_refused_with_a_way_out(host: str) -> None:
    with pytest.raises(RefusedError, match="Name an address of this host"):
        open_listener(host, 7654)
