"""What is said of processes that cannot be looked at, or only in part: each odd one for real."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from fuelline.record.attach.access import find_access, find_process, is_same, refuse
from fuelline.record.attach.processes import Seen, look_at
from fuelline.schema.errors import InputError

pytestmark = pytest.mark.integration
_NOBODY = 65534
_PR_SET_DUMPABLE = 4


@contextmanager
def forked(act: Callable[[], object]) -> Iterator[int]:
    """A child of ours that has done something and sleeps."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        act()
        os.write(writer, b"x")
        while True:
            time.sleep(60)
    os.read(reader, 1)
    os.close(reader)
    os.close(writer)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def see(pid: int) -> Seen:
    seen = look_at(pid)
    assert seen is not None
    return seen


def test_a_number_that_is_nobodys() -> None:
    with pytest.raises(InputError, match=r"There is no process 4194303 .* `fuelline attach`"):
        find_process(4194303)


def test_a_zombie_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(InputError, match=r"zombie whose exit code process \d+ has not taken"):
        find_process(child.pid)
    child.wait()


def test_a_stopped_process_is_told_how_to_go_on() -> None:
    with forked(lambda: None) as pid:
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        with pytest.raises(InputError, match=rf"is stopped.*`kill -CONT {pid}`"):
            find_process(pid)


def test_a_number_that_was_given_anew_is_another_process() -> None:
    with forked(lambda: None) as pid:
        seen = see(pid)
        assert is_same(seen)
        earlier = seen._replace(stat=replace(seen.stat, start_ticks=seen.stat.start_ticks - 1))
        assert not is_same(earlier)
    assert not is_same(seen)


def test_too_many_threads_and_unknown_pythons_leave_t0() -> None:
    own = see(os.getpid())
    many = find_access(own._replace(stat=replace(own.stat, threads=5000)))
    assert many is not None
    assert (many.tier, "5,000 threads" in many.why_not_more) == ("T0", True)
    for version in ("3.7", "3.15"):
        access = find_access(own._replace(python=version))
        assert access is not None
        assert (access.tier, version in access.why_not_more) == ("T0", True)
    for version in ("3.8", "3.14"):
        access = find_access(own._replace(python=version))
        assert access is not None
        assert version not in access.why_not_more


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is to be played")
def test_another_users_process_is_refused_with_what_would_allow_it() -> None:
    read_end, write_end = os.pipe()
    with forked(lambda: None) as ours:
        pid = os.fork()
        if not pid:
            os.setgroups([])
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)
            seen = see(ours)
            os.write(write_end, f"{find_access(seen)} {refuse(seen)}".encode())
            os._exit(0)
        os.waitpid(pid, 0)
        told = os.read(read_end, 4096).decode()
    os.close(read_end)
    os.close(write_end)
    assert told.startswith("None ")
    assert "belongs to root (uid 0)" in told
    assert f"`sudo fuelline attach {ours}`" in told


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is to be played")
def test_a_process_that_is_not_dumpable_is_refused_to_its_own_user() -> None:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        with forked(lambda: ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)) as hidden:
            seen = see(hidden)
            os.write(write_end, f"{find_access(seen)} {refuse(seen)}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    told = os.read(read_end, 4096).decode()
    os.close(read_end)
    os.close(write_end)
    assert told.startswith("None ")
    assert "PR_SET_DUMPABLE to 0" in told
