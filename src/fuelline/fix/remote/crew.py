"""The trainer's side: a loader's workers on other hosts, from asking for them to giving them back.

Nothing here waits. A parked worker packs the dataset; a helper process, which knows Ray, finds
workers and checks them; when they are ready, the governor may try them. For the iterator each is a
channel like a local worker's. Lives inside the user's job: standard library and torch only.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
import weakref
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any

from fuelline.fix.elastic.channel import SocketChannel
from fuelline.fix.elastic.mailboxes import Errand
from fuelline.fix.elastic.memory import SegmentTable
from fuelline.fix.elastic.reach import MOST_REMOTE, RemoteFigures
from fuelline.fix.job_site import PRICE_VARIABLE
from fuelline.fix.messages import say
from fuelline.fix.remote.packing import Descriptor, PackedDataset, pack_dataset
from fuelline.fix.remote.parcels import Delivered, pack_small

if TYPE_CHECKING:
    from fuelline.fix.elastic.journal import FixJournal

__all__ = ["RemoteCrew"]

CHECKED_BATCHES = 3
"""To compare with: the first also opens files and imports, so two are timed."""
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
_START = """
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location(
    "fuelline", os.path.join({package!r}, "__init__.py"), submodule_search_locations=[{package!r}])
module = sys.modules["fuelline"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from fuelline.fix.remote.helper import main
main({fd})
"""
_FD = 3
LOG_VARIABLE = "FUELLINE_RAY_LOG"
"""Environment variable with a file for what Ray prints in the helper process; else nowhere."""
RELAY_S = 5e-4
"""CPU of this host for a batch that comes in, whatever its size; what a byte takes is measured when
workers are found."""
_MOST_PACKET_BYTES = 1 << 16


class RemoteCrew:
    """As `elastic.reach.OtherHosts` says."""

    def __init__(self, address: str, number: int, journal: FixJournal) -> None:
        self._address = address
        self._loader = number
        self._journal = journal
        self.figures: RemoteFigures | None = None
        self._is_over = False
        self._control: socket.socket | None = None
        self._pid = 0
        self._owner = os.getpid()
        self._dataset = -1
        self._count = 0
        self._iterator: weakref.ref[Any] | None = None
        self._has_packed = False
        """Whether this iterator's dataset is the one that the workers have."""
        self._fingerprint = ""
        self._nodes: dict[int, str] = {}
        """By number, of the workers that live."""
        self._opened: set[int] = set()
        self._ends: deque[str] = deque()
        self._tally = RemoteBatches()
        self._since = 0.0
        if not address.startswith("processes:") and importlib.util.find_spec("ray") is None:
            self.leave(
                "Ray is not installed in the job's Python: `pip install 'fuelline[ray]'`", told=True
            )

    def step(self, iterator: Any, needed: int) -> None:
        """As above."""
        if self._is_over:
            return
        self._poll()
        if needed and not self._count and not self._is_over:
            self._count = min(MOST_REMOTE // 2, needed)
            self._pack(iterator, _pick_indices(iterator))

    def renew(self, iterator: Any) -> None:
        """As above; where workers stay from epoch to epoch, so do these."""
        if self._is_over or self._is_of(iterator):
            return
        self._opened.clear()
        self._pack(iterator, [])

    def _is_of(self, iterator: Any) -> bool:
        return self._iterator is not None and self._iterator() is iterator

    def _pack(self, iterator: Any, indices: list[Any]) -> None:
        """Have the dataset packed by a worker that has nothing else to do."""
        self._iterator, self._has_packed = weakref.ref(iterator), False
        if self._dataset >= 0:
            os.close(self._dataset)
        self._dataset = os.memfd_create("fuelline-dataset", os.MFD_CLOEXEC)
        errand = Errand(pack_dataset, (Descriptor(self._dataset), indices))
        if not iterator.fl_send_errand(errand):
            self.leave("no worker was free to pack its dataset")

    def hear(self, iterator: Any, result: Any) -> bool:
        """As above."""
        if self._is_over or not self._is_of(iterator) or self._has_packed:
            return False
        if not isinstance(result, PackedDataset):
            self.leave(str(result))
            return False
        if not self._fingerprint:
            self._fingerprint = result.fingerprint
            self._ask_for_workers(result)
        elif result.fingerprint != self._fingerprint:
            self._fingerprint = result.fingerprint
            self._tell({"do": "load"}, self._dataset)
        self._has_packed = True
        return self.figures is not None

    def _ask_for_workers(self, packed: PackedDataset) -> None:
        self._start_helper()
        request = {"do": "find", "address": self._address, "count": self._count}
        self._tell({**request, "batches": packed.batches}, self._dataset)

    def _start_helper(self) -> None:
        """By a call that does not copy this process; of its files only one socket goes along."""
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        near.settimeout(0)
        log = os.environ.get(LOG_VARIABLE, os.devnull)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        actions: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            (os.POSIX_SPAWN_DUP2, far.fileno(), _FD),
        ]
        if far.fileno() == _FD:
            os.set_inheritable(_FD, True)  # noqa: FBT003 - as the function has it
        code = _START.format(package=_PACKAGE, fd=_FD)
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-c", code],
                _clean_environment(),
                file_actions=actions,
                setsid=True,
            )
        except OSError as refusal:
            near.close()
            self.leave(f"its helper process could not be started: {refusal}")
            return
        finally:
            far.close()
        self._control = near

    def _tell(self, request: dict[str, Any], fd: int) -> None:
        if self._control is None:
            return
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], [fd])
        except OSError:
            self._lose_helper()

    def _poll(self) -> None:
        """What the helper has to say."""
        while self._control is not None:
            try:
                content = self._control.recv(_MOST_PACKET_BYTES)
            except BlockingIOError:
                return
            except OSError:
                content = b""
            if not content:
                self._lose_helper()
                return
            self._take(json.loads(content))

    def _take(self, answer: dict[str, Any]) -> None:
        if answer["is"] == "refused":
            self.leave(answer["why"])
        elif answer["is"] == "lost":
            if self._nodes.pop(answer["number"], None) is not None:
                self._opened.discard(answer["number"])
                self._ends.append(answer["why"])
                self._count_figures()
        elif answer["is"] == "ready":
            self._nodes = {each["number"]: each["node"] for each in answer["workers"]}
            self.figures = RemoteFigures(
                count=len(self._nodes),
                fetch_s=max(1e-6, answer["fetch_s"]),
                batch_bytes=answer["batch_bytes"],
                bytes_per_s=answer["bytes_per_s"],
                relay_s=RELAY_S + answer["batch_bytes"] * answer["cpu_s_per_byte"],
            )
            self._since = monotonic()
            self._journal.write(
                "remote_ready",
                loader=self._loader,
                remote=len(self._nodes),
                nodes=sorted(set(self._nodes.values())),
                fetch_s=answer["fetch_s"],
                batch_bytes=answer["batch_bytes"],
                bytes_per_s=answer["bytes_per_s"],
                problems=answer["problems"],
            )

    def _count_figures(self) -> None:
        if self.figures is None:
            return
        old = self.figures
        self.figures = None
        if self._nodes:
            self.figures = RemoteFigures(
                len(self._nodes), old.fetch_s, old.batch_bytes, old.bytes_per_s, old.relay_s
            )

    def _lose_helper(self) -> None:
        """Ray ends its driver when the cluster's head is gone; whatever it was, all is lost."""
        if self._nodes:
            why = "the helper process ended, as it does when Ray's head is gone"
            self._ends.extend(f"{node}: {why}" for node in self._nodes.values())
            self._nodes.clear()
        self.leave("the helper process ended before workers were ready" if not self._since else "")

    def open(self, iterator: Any, count: int) -> int:
        """As above."""
        if not self._is_of(iterator) or not self._has_packed:
            return 0
        self._poll()
        given = iterator._fl_context.given
        for number in self._nodes:
            room = iterator._fl_local + MOST_REMOTE - len(iterator._workers)
            if len(iterator._fl_remote) >= count or room <= 0 or self._control is None:
                break
            if number not in self._opened:
                worker_id = len(iterator._workers)
                channel = RemoteChannel(worker_id, iterator._fl_context.slots, self._tally)
                far = channel.connect()
                request = {"do": "open", "number": number, "given": {**given, "worker": worker_id}}
                self._tell(request, far.fileno())
                far.close()
                self._opened.add(number)
                iterator.fl_add_remote(channel, _RemoteProcess(self._pid))
        return len(iterator._fl_remote)

    def lose(self) -> str:
        """As above; the channel's end may be seen before the helper's word of it."""
        self._poll()
        return self._ends.popleft() if self._ends else "its connection ended"

    def leave(self, why: str, *, told: bool = False) -> None:
        """As above."""
        if self._is_over:
            return
        if why:
            self._journal.write("remote_left", loader=self._loader, why=why)
        if told:
            say(f"no workers on other hosts: {why}")
        self.close()

    def close(self) -> None:
        """As above; the helper ends when its socket does."""
        if self._is_over or os.getpid() != self._owner:
            return
        self._is_over = True
        self.figures = None
        if self._since:
            self._journal.write(
                "remote_end",
                loader=self._loader,
                remote=len(self._nodes),
                seconds=monotonic() - self._since,
                batches=self._tally.batches,
                core_price=_read_price(),
            )
        if self._dataset >= 0:
            os.close(self._dataset)
            self._dataset = -1
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._pid:
            _reap(self._pid)


class RemoteBatches:
    """What came from other hosts, of one loader."""

    def __init__(self) -> None:
        self.batches = 0


class RemoteChannel(SocketChannel):
    """To a worker on another host, by way of the helper."""

    def __init__(self, worker_id: int, slots: Any, tally: RemoteBatches) -> None:
        super().__init__()
        self._worker_id = worker_id
        self._slots = slots
        self._tally = tally
        self.table = SegmentTable()

    def put(self, message: Any) -> None:
        """Nothing in it may need this host's memory."""
        self.put_pickled(pack_small(message))

    def receive(self) -> Any:
        """A message as a local worker sends it; what the worker has counted is noted."""
        delivered: Delivered = super().receive()
        message = delivered.message
        if type(message[0]) is int:
            self._tally.batches += 1
        else:
            self._slots.add_epoch(self._worker_id)
        if delivered.is_varying:
            self._slots.set_varying(self._worker_id)
        return message


class _RemoteProcess:
    """What torch's loader asks of a worker process; its end is told by its channel."""

    exitcode = None

    def __init__(self, helper_pid: int) -> None:
        self.pid = helper_pid

    def is_alive(self) -> bool:
        """As far as torch is concerned."""
        return True

    def join(self, timeout: float | None = None) -> None:
        """There is nothing to wait for."""

    def terminate(self) -> None:
        """It ends with its channel."""


def _pick_indices(iterator: Any) -> list[Any]:
    """Of batches that are under way: workers elsewhere prepare them too, to compare."""
    return [index for _, index in sorted(iterator._fl_sent.items())][:CHECKED_BATCHES]


def _read_price() -> float | None:
    """Of a core-hour there, as the user gave it."""
    try:
        return float(os.environ[PRICE_VARIABLE])
    except (KeyError, ValueError):
        return None


def _clean_environment() -> dict[str, str]:
    """Without what brings the recorder and this loader into the processes of the job."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FUELLINE_")}
    own = os.path.join(_PACKAGE, "")  # noqa: PTH118 - no pathlib in the job
    paths = environment.pop("PYTHONPATH", "").split(os.pathsep)
    kept = [each for each in paths if each and not os.path.realpath(each).startswith(own)]
    if kept:
        environment["PYTHONPATH"] = os.pathsep.join(kept)
    return {**environment, "PYTHONSAFEPATH": "1"}


def _reap(pid: int) -> None:
    """It ends by itself; if it has already, nothing is left of it."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # somebody else has waited for it
