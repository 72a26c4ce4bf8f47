"""The observer as a process: it starts, watches, and leaves as it should, whatever happens."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fuelline.schema.run.journal import Decoded, decode_frames
from fuelline.schema.run.samples import (
    JOURNAL_NAME,
    Blind,
    HostSample,
    Limits,
    ProcessClock,
    ProcessSeen,
    StackSample,
    ThreadClock,
    ThreadState,
)

DEADLINE_S = 150.0


def command_for(run_dir: Path, root_pid: int) -> list[str]:
    module = [sys.executable, "-m", "fuelline.record.observer"]
    return [*module, "--run-dir", str(run_dir), "--root-pid", str(root_pid)]


def start(run_dir: Path, root_pid: int) -> subprocess.Popen[bytes]:
    with (run_dir / "observer.log").open("wb") as log:
        return subprocess.Popen(command_for(run_dir, root_pid), stdout=subprocess.PIPE, stderr=log)


@contextmanager
def watched(run_dir: Path, code: str) -> Iterator[tuple[subprocess.Popen[bytes], ...]]:
    job = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    observer = start(run_dir, job.pid)
    try:
        yield job, observer
    finally:
        for process in (job, observer):
            process.kill()
            process.communicate()


def read(run_dir: Path) -> Decoded:
    path = run_dir / JOURNAL_NAME
    return decode_frames(path.read_bytes() if path.exists() else b"")


def wait_for_rows(run_dir: Path, kind: type, count: int = 1) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if sum(isinstance(row, kind) for row in read(run_dir).rows) >= count:
            return
        time.sleep(0.1)
    pytest.fail(f"no {kind.__name__} in time: {(run_dir / 'observer.log').read_text()}")


def assert_quiet(run_dir: Path, observer: subprocess.Popen[bytes], code: int = 0) -> None:
    out, _ = observer.communicate(timeout=DEADLINE_S)
    assert out == b""
    assert (run_dir / "observer.log").read_text() == ""
    assert observer.returncode == code


SLEEPER = "import time; time.sleep(999)"


def test_it_records_a_job_and_leaves_when_the_job_is_over(tmp_path: Path) -> None:
    with watched(tmp_path, "import time; end = time.time() + 4\nwhile time.time() < end: pass") as (
        job,
        observer,
    ):
        job.wait()
        assert_quiet(tmp_path, observer)
        decoded = read(tmp_path)
        assert (decoded.damaged, decoded.torn_bytes) == (0, 0)
        kinds = {type(row) for row in decoded.rows}
        assert {ProcessSeen, ThreadState, ThreadClock, ProcessClock, HostSample, Limits} <= kinds
        states = [row for row in decoded.rows if isinstance(row, ThreadState)]
        assert {row.pid for row in states} == {job.pid}
        running = sum(row.count for row in states if row.state == "running")
        assert running > sum(row.count for row in states) / 2
        clocks = [row for row in decoded.rows if isinstance(row, ThreadClock)]
        assert clocks[-1].oncpu_ns > clocks[0].oncpu_ns


def test_sigterm_flushes_and_leaves_while_the_job_goes_on(tmp_path: Path) -> None:
    with watched(tmp_path, SLEEPER) as (job, observer):
        wait_for_rows(tmp_path, ThreadState)
        observer.terminate()
        assert_quiet(tmp_path, observer)
        assert read(tmp_path).torn_bytes == 0
        assert job.poll() is None


def test_signals_of_the_terminal_do_not_end_it_before_the_job(tmp_path: Path) -> None:
    with watched(tmp_path, SLEEPER) as (job, observer):
        wait_for_rows(tmp_path, HostSample)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            observer.send_signal(number)
        before = len(read(tmp_path).rows)
        wait_for_rows(tmp_path, HostSample, 3)
        assert len(read(tmp_path).rows) > before
        job.kill()
        job.wait()
        assert_quiet(tmp_path, observer)


def test_kill_9_leaves_a_journal_that_can_be_read_and_a_job_that_runs(tmp_path: Path) -> None:
    with watched(tmp_path, SLEEPER) as (job, observer):
        wait_for_rows(tmp_path, ThreadState, 2)
        observer.kill()
        observer.wait()
        decoded = read(tmp_path)
        assert decoded.damaged == 0
        assert any(isinstance(row, ThreadState) for row in decoded.rows)
        assert job.poll() is None


def test_a_job_that_was_over_before_we_came_gives_an_empty_but_sound_journal(
    tmp_path: Path,
) -> None:
    job = subprocess.Popen([sys.executable, "-c", "pass"])
    job.wait()
    observer = start(tmp_path, job.pid)
    assert_quiet(tmp_path, observer)
    assert not any(isinstance(row, ThreadState) for row in read(tmp_path).rows)


ORPHAN = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(5)"])
import time; time.sleep(2)
"""


def test_it_stays_until_the_last_descendant_has_ended(tmp_path: Path) -> None:
    with watched(tmp_path, ORPHAN) as (job, observer):
        job.wait()
        assert_quiet(tmp_path, observer)
        seen = [row for row in read(tmp_path).rows if isinstance(row, ProcessSeen)]
        orphans = [row.pid for row in seen if row.ppid == job.pid]
        assert len(orphans) == 1
        assert not is_alive(orphans[0])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores to be kept from one")
def test_cores_that_were_kept_from_the_job_for_a_moment_are_looked_at_again_soon(
    tmp_path: Path,
) -> None:
    every = os.sched_getaffinity(0)
    pinned = f"import os, time; os.sched_setaffinity(0, {{{min(every)}}}); time.sleep(999)"
    with watched(tmp_path, pinned) as (job, _):
        narrow = wait_for_limits(tmp_path, 1, 0)
        os.sched_setaffinity(job.pid, every)
        wide = wait_for_limits(tmp_path, len(every), narrow)
        seconds = [
            row
            for row in read(tmp_path).rows
            if isinstance(row, HostSample) and narrow < row.at_ns < wide
        ]
        assert len(seconds) < 9  # they come once a second, and limits every ten unless they change


def wait_for_limits(run_dir: Path, cpus_allowed: int, after_ns: int) -> int:
    """When they were first seen to be these."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        for row in read(run_dir).rows:
            is_wanted = isinstance(row, Limits) and row.cpus_allowed == cpus_allowed
            if is_wanted and row.at_ns > after_ns:
                return row.at_ns
        time.sleep(0.1)
    pytest.fail(f"never {cpus_allowed} cores: {read(run_dir).rows}")


def test_it_leaves_when_its_own_parent_dies(tmp_path: Path) -> None:
    job = subprocess.Popen([sys.executable, "-c", SLEEPER])
    code = f"""
import subprocess, time
p = subprocess.Popen({command_for(tmp_path, job.pid)!r})
print(p.pid, flush=True)
time.sleep(999)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    observer_pid = int(parent.stdout.readline())
    try:
        wait_for_rows_without_log(tmp_path)
        parent.kill()
        parent.communicate()
        deadline = time.monotonic() + DEADLINE_S
        while is_alive(observer_pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not is_alive(observer_pid)
        assert job.poll() is None
    finally:
        job.kill()
        job.wait()


def wait_for_rows_without_log(run_dir: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not read(run_dir).rows and time.monotonic() < deadline:
        time.sleep(0.1)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


MANY_CHILDREN = """
import os
for _ in range(3000):
    if not os.fork():
        os._exit(0)
    os.wait()
"""


def test_thousands_of_short_lived_children_are_survived(tmp_path: Path) -> None:
    with watched(tmp_path, MANY_CHILDREN) as (job, observer):
        assert job.wait() == 0
        assert_quiet(tmp_path, observer)
        decoded = read(tmp_path)
        assert decoded.damaged == 0
        assert job.pid in {row.pid for row in decoded.rows if isinstance(row, ProcessSeen)}


BUSY_THREADS = """
import threading, time
def work():
    while True:
        sum(range(1000)); time.sleep(0.001)
for _ in range(500):
    threading.Thread(target=work, daemon=True).start()
time.sleep(8)
"""


def test_a_job_with_500_busy_threads_gets_a_coarser_picture_not_a_costlier_one(
    tmp_path: Path,
) -> None:
    with watched(tmp_path, BUSY_THREADS) as (job, observer):
        assert job.wait() == 0
        assert_quiet(tmp_path, observer)
        rows = read(tmp_path).rows
        clocks = [row for row in rows if isinstance(row, ThreadClock)]
        assert len({row.tid for row in clocks}) > 200
        states = [row for row in rows if isinstance(row, ThreadState)]
        per_window: dict[int, int] = {}
        for row in states:
            per_window[row.window_ns] = per_window.get(row.window_ns, 0) + row.count
        assert max(per_window.values()) < 500


def test_more_threads_than_descriptors_become_a_blindspot(tmp_path: Path) -> None:
    code = BUSY_THREADS.replace("sleep(8)", "sleep(4)")
    job = subprocess.Popen([sys.executable, "-c", code])
    few = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256));"
    run = "from fuelline.record.observer import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", few + run, *command_for(tmp_path, job.pid)[3:]]
    try:
        assert subprocess.run(command, check=False, timeout=DEADLINE_S).returncode == 0
        assert job.wait() == 0
    finally:
        job.kill()
        job.wait()
    told = [row for row in read(tmp_path).rows if isinstance(row, Blind)]
    assert [row.what for row in told if "threads of the job" in row.what]


HOT_LINE = """
import threading  # as every training does; of Python 3.10 py-spy knows the main thread by its name
import time
def the_slow_function():
    while True:
        time.monotonic()
the_slow_function()
"""


def test_the_line_that_burns_the_time_is_among_the_stacks(tmp_path: Path) -> None:
    with watched(tmp_path, HOT_LINE) as (job, observer):
        wait_for_rows(tmp_path, StackSample)
        job.kill()
        job.wait()
        assert_quiet(tmp_path, observer)
        stacks = [row for row in read(tmp_path).rows if isinstance(row, StackSample)]
        assert {row.pid for row in stacks} == {job.pid}
        assert any("the_slow_function" in frame for frame in stacks[0].frames)
        assert stacks[0].tid == job.pid


def test_an_unwritable_run_folder_ends_it_with_one_line(tmp_path: Path) -> None:
    process = subprocess.run(
        command_for(tmp_path / "absent", os.getpid()),
        capture_output=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert process.returncode == 4
    assert b"Traceback" not in process.stderr
    assert process.stderr.count(b"\n") == 1


def test_wrong_arguments_are_a_usage_error() -> None:
    command = [sys.executable, "-m", "fuelline.record.observer"]
    for arguments in ([], ["--run-dir", "x"], ["--run-dir", "x", "--root-pid", "y"]):
        process = subprocess.run([*command, *arguments], capture_output=True, check=False)
        assert process.returncode == 2
        assert process.stderr.startswith(b"usage:")


CROWDED = """
import sys
from fuelline.record import observer

class Room:
    looks = 0
    def is_short(self):
        self.looks += 1
        return self.looks > 10

observer.MemoryRoom.find = Room
sys.exit(observer.main(sys.argv[1:]))
"""
"""An observer in a group that is killed as a whole and fills up after half a second."""


def test_it_leaves_before_a_group_is_full_that_is_killed_as_a_whole(tmp_path: Path) -> None:
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        words = ["--run-dir", str(tmp_path), "--root-pid", str(job.pid)]
        command = [sys.executable, "-c", CROWDED, *words]
        assert subprocess.run(command, timeout=DEADLINE_S, check=False).returncode == 0
        assert job.poll() is None
    finally:
        job.kill()
        job.wait()
    rows = read(tmp_path).rows
    (blind,) = (row for row in rows if isinstance(row, Blind) and "memory.oom.group" in row.why)
    assert "everything outside the job after that moment" in blind.what
    assert any(isinstance(row, HostSample) for row in rows)
