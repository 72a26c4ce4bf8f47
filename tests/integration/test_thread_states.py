"""What real threads do, as the sampler sees it: blocked here, running there, and where exactly."""

import importlib
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fuelline.record.samplers.blocked import Resolver
from fuelline.record.samplers.descriptors import Descriptors
from fuelline.record.samplers.mounts import MountTable
from fuelline.record.samplers.phases import Phases
from fuelline.record.samplers.places import Places
from fuelline.record.samplers.procfs import read_kept
from fuelline.record.samplers.threads import REFUSED_ROUNDS, ThreadStates
from fuelline.record.samplers.tree import Tree
from fuelline.schema import wire
from fuelline.schema.run.samples import Blind, Place, ThreadState

DEADLINE_S = 30.0
SELECT = "select pselect6"
"""Which of the two a C library uses is its own affair."""
SLEEP = f"nanosleep clock_nanosleep {SELECT}"


class Eye:
    """The thread sampler on one real child process, without the observer around it."""

    def __init__(self, pid: int, spools: Path, read: Callable[[int], bytes] = read_kept) -> None:
        self.tree = Tree(pid, 4096)
        self.tree.look_for_children()
        self.phases = Phases(spools)
        self.places = Places()
        resolver = Resolver(Descriptors(self.places, MountTable()))
        self.sampler = ThreadStates(self.tree, self.phases, resolver, read)
        self.seen: Counter[tuple[str, str]] = Counter()
        self.rows: list[ThreadState | Blind] = []
        self.known_places: dict[int, Place] = {}

    def look(self, rounds: int) -> list[ThreadState]:
        self.tree.refresh()
        self.tree.offer(self.phases.look_for_spools())
        self.tree.look_for_children()
        self.phases.assign(self.tree)
        self.sampler.sort_threads()
        for _ in range(rounds):
            self.sampler.sample(time.monotonic_ns())
            time.sleep(0.002)
        self.sampler.finish()
        rows = self.sampler.drain()
        self.rows += rows
        self.known_places.update({place.id: place for place in self.places.drain()})
        return [row for row in rows if isinstance(row, ThreadState)]

    def wait_for(self, state: str, calls: str = "") -> ThreadState:
        """Look until most samples of a main thread agree; the machine may be busy."""
        deadline = time.monotonic() + DEADLINE_S
        rows: list[ThreadState] = []
        while time.monotonic() < deadline:
            rows = [row for row in self.look(20) if row.tid == row.pid]
            top = max(rows, key=lambda row: row.count, default=None)
            if top and top.state == state and (not calls or top.syscall in calls.split()):
                return top
        pytest.fail(f"never mostly {state} in {calls}; last seen {rows}")


@contextmanager
def child(code: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def eye_on(code: str, *arguments: str, spools: Path = Path("/nowhere")) -> Iterator[Eye]:
    with child(code, *arguments) as process:
        eye = Eye(process.pid, spools)
        try:
            yield eye
        finally:
            eye.tree.close()
            eye.phases.close()


@pytest.mark.parametrize(
    ("code", "state", "calls"),
    [
        ("import time; time.sleep(99)", "sleep", SLEEP),
        ("import select; select.select([], [], [], 99)", "sleep", SELECT),
        ("while True: pass", "running", ""),
        ("import sys; sys.stdin.buffer.read(1)", "pipe", "read"),
        (
            "import select; p = select.poll(); p.register(0); p.modify(0, 1); p.poll()",
            "pipe",
            "poll",
        ),
        ("import select; select.select([0], [], [])", "pipe", SELECT),
        (
            "import select; e = select.epoll(); e.register(0, 1); e.poll()",
            "pipe",
            "epoll_wait epoll_pwait",
        ),
        ("import threading; a = threading.Lock(); a.acquire(); a.acquire()", "lock", "futex"),
        ("import os; os.read(os.eventfd(0), 8)", "pipe", "read"),
        ("import socket; a, b = socket.socketpair(); a.recv(1)", "pipe", "recvfrom"),
        ("import os; os.wait() if os.fork() else os.read(0, 1)", "other", "wait4"),
    ],
    ids=lambda value: value[:40].replace(" ", "_") if isinstance(value, str) else None,
)
def test_a_blocked_main_thread_shows_what_it_is_blocked_in(
    code: str, state: str, calls: str
) -> None:
    with eye_on(code) as eye:
        eye.wait_for(state, calls)


REMOTE = """
import select, socket, sys
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
if sys.argv[2] == "recv":
    peer.recv(1)
select.select([peer, 0], [], [])
"""


@pytest.mark.parametrize(("way", "calls"), [("recv", "recvfrom"), ("select", SELECT)])
def test_waiting_for_a_remote_peer_names_its_address(way: str, calls: str) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with eye_on(REMOTE, str(port), way) as eye:
            row = eye.wait_for("socket", calls)
            assert eye.known_places[row.place].path == f"tcp 127.0.0.1:{port}"


def test_a_named_pipe_is_a_pipe_although_it_has_a_path(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with eye_on("import sys; open(sys.argv[1])", str(fifo)) as eye:
        assert eye.wait_for("pipe").syscall in {"open", "openat"}
    with eye_on("import os, sys; os.read(os.open(sys.argv[1], os.O_RDWR), 1)", str(fifo)) as eye:
        row = eye.wait_for("pipe", "read")
        assert eye.known_places[row.place].path == str(fifo)


@pytest.fixture
def slow_mount(tmp_path: Path) -> Iterator[Path]:
    """A FUSE mount whose reads take 300 ms."""
    if os.geteuid() != 0 or not Path("/dev/fuse").exists() or not shutil.which("umount"):
        pytest.skip("mounting needs root and /dev/fuse")
    try:
        importlib.import_module("mfusepy")
    except (ImportError, OSError) as missing:
        pytest.skip(f"a slow mount needs mfusepy and libfuse ({missing})")
    point = tmp_path / "mount"
    point.mkdir()
    script = Path(__file__).with_name("slow_mount.py")
    server = subprocess.Popen([sys.executable, str(script), str(point), "0.3"])
    deadline = time.monotonic() + DEADLINE_S
    while not point.is_mount() and time.monotonic() < deadline:
        time.sleep(0.05)
    try:
        assert point.is_mount()
        yield point
    finally:
        subprocess.run(["umount", "-l", str(point)], check=False)
        server.terminate()
        server.wait(10)


SLOW_READS = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
import mmap
buffer = mmap.mmap(-1, 4096)
for block in range(10**6):
    os.preadv(fd, [buffer], block * 1048576 % 2**26)
"""

SLOW_FAULTS = """
import mmap, os, sys
data = mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 0, prot=mmap.PROT_READ)
data.madvise(mmap.MADV_RANDOM)
for at in range(0, len(data), 4096):
    data[at]
"""


@pytest.mark.root
def test_a_slow_read_names_the_file_its_mount_and_its_filesystem(slow_mount: Path) -> None:
    with eye_on(SLOW_READS, str(slow_mount / "slow")) as eye:
        row = eye.wait_for("read")
        place = eye.known_places[row.place]
        assert place.path == str(slow_mount / "slow")
        assert place.mount == str(slow_mount)
        assert place.fstype.startswith("fuse")


@pytest.mark.root
def test_a_page_fault_on_slow_storage_is_a_fault_of_the_mapped_file(slow_mount: Path) -> None:
    with eye_on(SLOW_FAULTS, str(slow_mount / "slow")) as eye:
        row = eye.wait_for("fault")
        assert row.syscall == ""
        assert eye.known_places[row.place].path == str(slow_mount / "slow")


MANY_THREADS = """
import threading, time
for _ in range(500):
    threading.Thread(target=time.sleep, args=(99,), daemon=True).start()
time.sleep(99)
"""


def test_a_job_with_500_threads_is_sampled_in_small_rounds() -> None:
    with eye_on(MANY_THREADS) as eye:
        eye.wait_for("sleep")
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            eye.tree.refresh()
            if sum(len(each.threads) for each in eye.tree.processes.values()) >= 500:
                break
        rows = eye.look(20)
        assert sum(row.count for row in rows) < 20 * 12
        assert any(row.tid != row.pid for row in rows)


def test_more_threads_than_descriptors_are_counted_as_left_out() -> None:
    with child(MANY_THREADS) as process:
        tree = Tree(process.pid, 160)
        deadline = time.monotonic() + DEADLINE_S
        while tree.threads_left_out < 400 and time.monotonic() < deadline:
            tree.look_for_children()
            tree.refresh()
        assert tree.threads_left_out >= 400
        assert sum(len(each.threads) for each in tree.processes.values()) <= 40
        tree.close()


def refuse(_fd: int) -> bytes:
    raise PermissionError(1, "Operation not permitted")


def test_refused_system_calls_fall_back_to_the_scheduler_state_and_are_told_once() -> None:
    with child("import os; os.execlp('sleep', 'sleep', '99')") as process:
        eye = Eye(process.pid, Path("/nowhere"), refuse)
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            rows = eye.look(REFUSED_ROUNDS + 1)
            if {row.state for row in rows} == {"sleep"}:
                break
        assert {(row.state, row.syscall, row.place) for row in rows} == {("sleep", "", 0)}
        told = [row for row in eye.rows if isinstance(row, Blind)]
        assert len(told) == 1
        assert "slow storage" in told[0].forbids
        eye.tree.close()


def test_a_running_thread_is_running_even_where_system_calls_are_refused() -> None:
    with child("while True: pass") as process:
        eye = Eye(process.pid, Path("/nowhere"), refuse)
        states = Counter(row.state for row in eye.look(50))
        assert states.most_common(1)[0][0] == "running"
        eye.tree.close()


FAMILY = """
import os, sys, time
from fuelline.record.spool import Spool
from fuelline.schema import wire
if not os.fork():
    Spool(sys.argv[1]).append(wire.Kind.GC, 1, 1)
    print(os.getpid(), flush=True)
    time.sleep(99)
spool = Spool(sys.argv[1])
for line in sys.stdin:
    spool.set_trainer(os.getpid())
    spool.buffer.phase = int(line)
"""


def test_a_worker_follows_the_phase_of_the_trainer_above_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FAMILY, str(tmp_path)]
    trainer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert trainer.stdin is not None
    assert trainer.stdout is not None
    worker = int(trainer.stdout.readline())
    eye = Eye(trainer.pid, tmp_path)
    try:
        assert {row.phase for row in eye.look(5) if row.pid == trainer.pid} == {-1}
        for phase in (wire.Phase.WAIT, wire.Phase.COMPUTE):
            trainer.stdin.write(b"%d\n" % phase)
            trainer.stdin.flush()
            wanted = {(trainer.pid, phase), (worker, phase)}
            deadline = time.monotonic() + DEADLINE_S
            seen: set[tuple[int, int]] = set()
            while seen != wanted and time.monotonic() < deadline:
                seen = {(row.pid, row.phase) for row in eye.look(5)}
            assert seen == wanted
    finally:
        os.kill(worker, 9)
        trainer.kill()
        trainer.communicate()
        eye.tree.close()
        eye.phases.close()


def test_a_process_that_ends_between_two_rounds_is_forgotten_without_a_word() -> None:
    with child("pass") as process:
        eye = Eye(process.pid, Path("/nowhere"))
        process.wait()
        assert eye.look(3) == []
        assert not eye.tree.processes
