"""The helper process: asks Ray for workers, checks them, and passes batches on to the trainer.

One for each loader that wants workers on other hosts, started by its training process and gone with
it: Ray's driver is this process, so nothing that Ray does to its driver happens to the training.
The trainer sends requests as JSON over a local socket, with descriptors; the answers are JSON too:

    {"do": "find", "address": "auto", "count": 4, "batches": [...]}  + dataset   -> ready, refused
    {"do": "open", "number": 0, "given": {...}}                      + channel
    {"do": "load"}                                                   + dataset
    {"is": "lost", "number": 0, "why": "its process ended"}

No torch here, and no code of the job.
"""

from __future__ import annotations

import json
import mmap
import os
import pickle
import queue
import secrets
import socket
import statistics
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, process_time
from typing import Any

from fuelline.fix.remote.placing import NowhereError, Placer, find_own_address, make_placer
from fuelline.fix.remote.relay import LostWorkerError, Relay
from fuelline.fix.remote.wire import FrameKind, meet_worker

__all__ = ["main"]

ASK_S = 30.0
"""For Ray to answer at all: `ray.init` with an address where nobody listens hangs."""
COME_S = 60.0
"""For a worker to come: with torch an actor takes 3 to 15 s."""
LOAD_S = 120.0
FLOOD_BYTES = 8 << 20
"""From all workers together, to measure the line: 70 ms at 1 Gbit."""
FLOOD_S = 10.0
LOOK_S = 0.5
MOST_PACKET_BYTES = 1 << 16
_PACKAGE = Path(__file__).resolve().parents[2]
_SENT = (
    "__init__.py", "schema/__init__.py", "schema/seams.py", "fix/__init__.py", "fix/messages.py",
    "fix/elastic/*.py", "fix/remote/*.py", "schema/worker_count.py",
)  # fmt: skip
"""Of this package: what a worker runs."""


def main(fd: int) -> None:
    """Serve the trainer at the other end of this socket until it is gone."""
    helper = _Broker(socket.socket(fileno=fd))
    threading.Thread(target=helper.watch, daemon=True).start()
    helper.run()


class _Broker:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._telling = threading.Lock()
        self._trainer = os.getppid()
        self._placer: Placer | None = None
        self._secret = secrets.token_bytes(32)
        self._relays: dict[int, Relay] = {}
        self._arrivals: queue.SimpleQueue[Relay] = queue.SimpleQueue()
        self._places: dict[int, Any] = {}
        self._listeners: dict[str, socket.socket] = {}

    def run(self) -> None:
        """Requests one after the other; what takes long has a thread, as the end may come first."""
        while True:
            request, fds = self._receive()
            if request is None:
                self._leave()
            elif request["do"] == "find":
                threading.Thread(target=self._find, args=(request, fds[0]), daemon=True).start()
            elif request["do"] == "open":
                relay = self._relays[request["number"]]
                relay.open(fds[0], json.dumps(request["given"]).encode())
            elif request["do"] == "load":
                self._load(_read(fds[0]))

    def _receive(self) -> tuple[dict[str, Any] | None, list[int]]:
        try:
            content, fds, *_ = socket.recv_fds(self._control, MOST_PACKET_BYTES, 4)
        except OSError:
            return None, []
        return (json.loads(content), fds) if content else (None, fds)

    def watch(self) -> None:
        """Go with the trainer, also where somebody else has its end of the socket; and listen."""
        pause = threading.Event()
        while not pause.wait(LOOK_S):
            if os.getppid() != self._trainer:
                self._leave()
            for relay in list(self._relays.values()):
                relay.watch()

    def _leave(self) -> None:
        """At once: links end with the process, and the workers with them; Ray ends the actors."""
        os._exit(0)

    def _tell(self, **answer: Any) -> None:
        with self._telling:
            try:
                self._control.send(json.dumps(answer).encode()[:MOST_PACKET_BYTES])
            except OSError:
                self._leave()

    def _find(self, request: dict[str, Any], fd: int) -> None:
        """Place workers, and report those that are as good as local ones."""
        problems: list[str] = []
        try:
            content = _read(fd)
            self._place(request, problems)
            good, figures = self._try_out(content, request["batches"], problems)
        except NowhereError as nowhere:
            self._tell(**{"is": "refused", "why": str(nowhere)})
            return
        except Exception as failure:  # noqa: BLE001 - nobody reads what this process prints
            self._tell(**{"is": "refused", "why": f"{type(failure).__name__}: {failure}"})
            return
        if not good:
            self._tell(**{"is": "refused", "why": problems[0], "others": len(problems) - 1})
            return
        workers = [{"number": each.number, "node": each.node.address} for each in good]
        answer = {"workers": workers, "problems": problems[:4], **figures}
        self._tell(**{"is": "ready", **answer})

    def _place(self, request: dict[str, Any], problems: list[str]) -> None:
        address = request["address"]
        self._placer = placer = make_placer(address)
        nodes = _ask(placer.connect, f"no answer from Ray at {address} within {ASK_S:.0f} s")
        places = [node for turn in range(request["count"]) for node in nodes if turn < node.cores]
        for number, node in enumerate(places[: request["count"]]):
            own = find_own_address(node.address)
            port = self._listen(own)
            self._places[number] = node
            given = {"address": (own, port), "secret": self._secret, "number": number}
            placer.place(node, number, pickle.dumps({**given, "sources": _read_sources()}))
        self._await_all(problems)

    def _listen(self, own: str) -> int:
        if own not in self._listeners:
            listener = self._listeners[own] = socket.create_server((own, 0), backlog=128)
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return int(self._listeners[own].getsockname()[1])

    def _accept(self, listener: socket.socket) -> None:
        while True:
            end, _ = listener.accept()
            try:
                number, link = meet_worker(end, self._secret)
            except (OSError, EOFError):
                end.close()
                continue
            if number in self._places and number not in self._relays:
                relay = Relay(number, self._places[number], link, self._on_end)
                self._relays[number] = relay
                self._arrivals.put(relay)

    def _await_all(self, problems: list[str]) -> None:
        """Until each has come or is known not to."""
        assert self._placer is not None
        waiting, deadline = dict(self._places), monotonic() + COME_S
        while waiting and monotonic() < deadline:
            came = _take(self._arrivals)
            if came is not None:
                del waiting[came.number]
                continue
            for number, node in list(waiting.items()):
                end = self._placer.find_end(number)
                if end:
                    problems.append(f"{node.address}: {end}")
                    del waiting[number]
        for node in waiting.values():
            own = find_own_address(node.address)
            problems.append(
                f"{node.address}: no worker came within {COME_S:.0f} s; can that host reach {own}?"
            )

    def _try_out(
        self, content: mmap.mmap, batches: list[str], problems: list[str]
    ) -> tuple[list[Relay], dict[str, Any]]:
        """Those that make the same batches as this host, and what they and the line can do."""
        relays = list(self._relays.values())
        if not relays:
            return [], {}
        with ThreadPoolExecutor(len(relays)) as pool:
            checks = list(pool.map(lambda each: _check(each, content, batches), relays))
            good = [each for each, check in zip(relays, checks, strict=True) if not check.why]
            problems += [
                f"{each.node.address}: {check.why}"
                for each, check in zip(relays, checks, strict=True)
                if check.why
            ]
            for each in relays:
                if each not in good:
                    each.end("it is not as good as a local one")
            if not good:
                return [], {}
            began, began_s, share = monotonic(), process_time(), FLOOD_BYTES // len(good)
            size = sum(pool.map(lambda each: _flood(each, share), good))
            rate, cpu_s = size / (monotonic() - began), process_time() - began_s
        kept = [check for check in checks if not check.why]
        figures = {
            "fetch_s": statistics.median(check.fetch_s for check in kept),
            "batch_bytes": statistics.mean(check.batch_bytes for check in kept),
            "bytes_per_s": max(1.0, rate),
            "cpu_s_per_byte": cpu_s / max(1, size),
        }
        return [each for each in good if each.is_alive], figures

    def _load(self, content: mmap.mmap) -> None:
        """Another epoch's dataset; sessions that are opened after this use it."""
        for relay in list(self._relays.values()):
            threading.Thread(target=_reload, args=(relay, content), daemon=True).start()

    def _on_end(self, relay: Relay, why: str) -> None:
        self._tell(**{"is": "lost", "number": relay.number, "why": f"{relay.node.address}: {why}"})


class _Check:
    """What became of a worker's first batches."""

    def __init__(self, why: str, fetch_s: float = 0.0, batch_bytes: float = 0.0) -> None:
        self.why = why
        self.fetch_s = fetch_s
        self.batch_bytes = batch_bytes


def _check(relay: Relay, content: mmap.mmap, batches: list[str]) -> _Check:
    try:
        problem = relay.ask(FrameKind.LOAD, FrameKind.LOADED, LOAD_S, content).decode()
        if problem:
            return _Check(problem)
        found = json.loads(relay.ask(FrameKind.CHECK, FrameKind.CHECKED, LOAD_S))
    except LostWorkerError as lost:
        return _Check(str(lost))
    if found["why"]:
        return _Check(f"its first batch failed: {found['why']}")
    if [each[0] for each in found["batches"]] != batches:
        return _Check("its first batches are not those of this host")
    seconds = [each[1] for each in found["batches"]]
    settled = seconds[1:] or seconds  # the first one also opens and imports
    sizes = [each[2] for each in found["batches"]]
    return _Check("", statistics.median(settled), statistics.mean(sizes))


def _flood(relay: Relay, size: int) -> int:
    """Bytes that came: on a slow line as many as it carries in this time."""
    came, deadline = 0, monotonic() + FLOOD_S
    try:
        piece = relay.ask(FrameKind.FLOOD, FrameKind.FLOODED, FLOOD_S, str(size).encode())
        while piece:
            came += len(piece)
            piece = relay.expect(FrameKind.FLOODED, deadline - monotonic())
    except LostWorkerError:
        pass  # it says so itself
    return came


def _reload(relay: Relay, content: mmap.mmap) -> None:
    try:
        problem = relay.ask(FrameKind.LOAD, FrameKind.LOADED, LOAD_S, content).decode()
    except LostWorkerError as lost:
        problem = str(lost)
    if problem:
        relay.end(problem)


def _take(arrivals: queue.SimpleQueue[Relay]) -> Relay | None:
    try:
        return arrivals.get(timeout=LOOK_S)
    except queue.Empty:
        return None


def _ask(function: Any, too_late: str) -> Any:
    """What it gives, if it does in time: a thread cannot be ended, so this process will be."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((function(), None))
        except NowhereError as nowhere:
            answers.put((None, nowhere))
        except Exception as failure:  # noqa: BLE001 - of Ray, whatever it is: told to the user
            why = f"{type(failure).__name__}: {str(failure).strip()[:300]}"
            answers.put((None, NowhereError(f"Ray could not be asked: {why}")))

    threading.Thread(target=run, daemon=True).start()
    try:
        found, problem = answers.get(timeout=ASK_S)
    except queue.Empty:
        raise NowhereError(too_late) from None
    if problem is not None:
        raise problem
    return found


def _read(fd: int) -> mmap.mmap:
    try:
        return mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    finally:
        os.close(fd)


def _read_sources() -> dict[str, tuple[str, str, bool]]:
    sources = {}
    for pattern in _SENT:
        for path in sorted(_PACKAGE.glob(pattern)):
            parts = [_PACKAGE.name, *path.relative_to(_PACKAGE).with_suffix("").parts]
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            sources[name] = (str(path), path.read_text(encoding="utf-8"), is_package)
    return sources
