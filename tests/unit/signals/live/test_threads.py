"""What threads did: clocks tell how much, samples tell of what."""

from __future__ import annotations

import pytest

from fuelline.schema.run.samples import Place, ThreadClock, ThreadState
from fuelline.signals.live.threads import LiveThreads
from tests.unit.signals.live.growths import PID

S = 10**9


def state(name: str, count: int, at_s: int = 100, place: int = 0) -> ThreadState:
    return ThreadState(at_s * S, PID, PID, 1, name, "pread64", place, count)


def clock(at_s: float, oncpu_s: float, runq_s: float) -> ThreadClock:
    return ThreadClock(int(at_s * S), PID, PID, int(oncpu_s * S), int(runq_s * S))


def mix(threads: LiveThreads) -> dict[str, float]:
    shares = {share.part: share.frac for share in threads.mix(PID, PID)}
    assert not shares or sum(shares.values()) == pytest.approx(1)
    return shares


def test_clocks_tell_running_from_waiting_for_a_core_and_samples_split_the_rest() -> None:
    threads = LiveThreads()
    for row in (clock(90, 50, 7), clock(100, 52, 8)):
        threads.add_clock(row)
    for row in (state("read", 6), state("pipe", 2), state("running", 9)):
        threads.add_state(row)
    found = {"running": 0.2, "for core": 0.1, "read": 0.525, "idle": 0.175}
    assert mix(threads) == pytest.approx(found)


def test_without_clocks_the_samples_have_to_do() -> None:
    threads = LiveThreads()
    for row in (state("read", 1), state("running", 3)):
        threads.add_state(row)
    assert mix(threads) == {"running": 0.75, "read": 0.25}


def test_blocked_time_that_no_sample_saw_is_said_to_be_unseen() -> None:
    threads = LiveThreads()
    for row in (clock(90, 50, 7), clock(100, 55, 7)):
        threads.add_clock(row)
    assert mix(threads) == {"running": 0.5, "for core": 0, "unseen": 0.5}


def test_a_thread_that_nobody_saw_has_no_mix_and_no_place() -> None:
    assert mix(LiveThreads()) == {}
    assert LiveThreads().place(PID, PID) is None


def test_one_reading_of_a_clock_tells_nothing() -> None:
    threads = LiveThreads()
    threads.add_clock(clock(100, 50, 7))
    assert mix(threads) == {}


def test_a_clock_that_is_not_told_again_has_not_moved() -> None:
    threads = LiveThreads()
    for row in (clock(50, 10, 0), clock(60, 20, 0)):
        threads.add_clock(row)
    threads.add_state(state("pipe", 1, at_s=100))
    threads.forget()
    assert mix(threads) == {"running": 0, "for core": 0, "idle": 1}


def test_what_is_older_than_the_last_seconds_is_forgotten() -> None:
    threads = LiveThreads()
    threads.add_state(state("read", 50, at_s=80))
    threads.add_state(state("pipe", 1, at_s=100))
    threads.forget()
    assert mix(threads) == {"idle": 1}
    threads.add_state(ThreadState(200 * S, 1, 1, 1, "read", "", 0, 1))
    threads.forget()
    assert mix(threads) == {}
    assert list(threads._threads) == [(1, 1)]


def test_the_place_is_the_one_it_was_blocked_on_most() -> None:
    threads = LiveThreads()
    threads.add_place(Place(1, "/data/a", "/data", "nfs4", "0:1"))
    threads.add_place(Place(2, "/data/b", "/data", "nfs4", "0:1"))
    rows = [state("read", 2, place=1), state("read", 5, place=2), state("lock", 99, place=1)]
    for row in (*rows, state("read", 3)):
        threads.add_state(row)
    place = threads.place(PID, PID)
    assert place is not None
    assert (place.path, place.fstype, place.syscall, place.share) == (
        "/data/b", "nfs4", "pread64", 0.5,
    )  # fmt: skip
