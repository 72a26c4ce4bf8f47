"""The device's time of a batch, found from a host that launches and sometimes waits."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuelline.schema.diagnosis.devices import DeviceFacts
from fuelline.schema.diagnosis.facts import HotLine
from fuelline.schema.readings import Missing, Reading
from fuelline.schema.wire import Kind
from fuelline.signals.recorded.device_time import cut_cycles, measure_device_time, read_device_clock
from tests.unit.builders import Lane, judge, make_timeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.signals.recorded.device_time import DeviceTime


def play(
    device_ms: float,
    *,
    batches: int = 100,
    wait: Callable[[int], float] = lambda _: 40.0,
    sync_every: int = 25,
    host_ms: float = 4.0,
    queue: int = 2,
    loop_ms: float = 0.2,
    first: int = 0,
) -> Lane:
    """A loop over a device that works beside it: a queue of timed batches, as CUDA has."""
    lane, now, done = Lane(), 0.0, [0.0]
    for number in range(batches):
        now += wait(number)
        done.append(max(now, done[-1]) + device_ms)
        full = max(now, done[-1 - queue]) - now if number >= queue else 0.0
        lane.batch(wait(number)).gap(host_ms / 2 + full).backward(host_ms / 4)
        lane.optimizer(host_ms / 4)
        now += host_ms + full
        stop = max(0.0, done[-1] - now) if sync_every and number % sync_every == first else 0.0
        lane.gap(loop_ms + stop)
        now += loop_ms + stop
    lane.batch(1.0)
    return lane


def device_of(
    lane: Lane,
    lines: list[HotLine] | None = None,
    devices: list[DeviceFacts] | None = None,
    blocked: float = 0.0,
    queued_ns: float = 0.0,
) -> DeviceTime:
    timeline = make_timeline(lane)
    cycles = cut_cycles(timeline, *judge(timeline))
    return measure_device_time(
        cycles, lines or [], devices or [], batch_ns=45e6, blocked_frac=blocked, queued_ns=queued_ns
    )


def test_a_starved_device_is_seen_where_the_loss_is_read() -> None:
    told = device_of(play(30.0))
    assert told.mode == "beside"
    assert isinstance(told.seconds, Reading)
    told.seconds.check()
    assert told.seconds.value == pytest.approx(0.030, rel=0.02)
    assert told.sync_frac == pytest.approx(0.04, abs=0.02)


def test_a_backlog_at_the_wait_is_divided_among_its_batches() -> None:
    told = device_of(play(30.0, wait=lambda _: 1.0))
    assert isinstance(told.seconds, Reading)
    assert told.seconds.value == pytest.approx(0.030, rel=0.03)


@settings(max_examples=settings().max_examples // 2)
@given(
    device_ms=st.floats(8, 80),
    every=st.integers(7, 30),
    waits=st.lists(st.floats(0.5, 60), min_size=9, max_size=9),
)
def test_any_mixture_of_waits_gives_the_same_device(
    device_ms: float, every: int, waits: list[float]
) -> None:
    lane = play(device_ms, wait=lambda number: waits[number % 9], sync_every=every, batches=120)
    told = device_of(lane)
    assert isinstance(told.seconds, Reading)
    assert told.seconds.value == pytest.approx(device_ms / 1e3, rel=0.05)


def test_a_loop_that_never_waits_needs_counters_or_says_so() -> None:
    lane = play(30.0, sync_every=0)
    seen = DeviceFacts(device="gpu0", name="x", utilisation=Reading(value=0.6, unit="frac"))
    told = device_of(lane, devices=[seen])
    assert isinstance(told.seconds, Reading)
    assert told.seconds.value == pytest.approx(0.6 * 0.045)
    blind = device_of(lane, devices=[DeviceFacts(device="gpu0", name="x")])
    assert isinstance(blind.seconds, Missing)


def test_a_host_without_a_device_computes_itself() -> None:
    told = device_of(play(0.0, sync_every=0, host_ms=30.0))
    assert told.mode == "within"
    assert isinstance(told.seconds, Reading)
    assert told.seconds.value == pytest.approx(0.030, rel=0.02)


def test_a_full_queue_lets_the_host_in_once_per_batch() -> None:
    told = device_of(
        play(30.0, wait=lambda number: 0.5 if number % 10 else 90.0, sync_every=0), blocked=0.9
    )
    assert isinstance(told.seconds, Reading)
    assert told.seconds.value == pytest.approx(0.030, rel=0.05)


def test_launches_that_are_held_up_for_longer_than_batches_last_tell_of_no_device() -> None:
    lane = Lane()
    for number in range(200):
        lane.batch(0.1).gap(20.0 if number % 20 == 7 else 0.4).backward(0.2).optimizer(0.2)
    lane.batch(0.1)
    assert device_of(lane, blocked=0.9, queued_ns=300e6).mode == "within"


def test_two_stalls_in_a_hundred_are_no_evidence_unless_they_are_counted() -> None:
    counted = device_of(play(30.0, sync_every=40)).seconds
    assert isinstance(counted, Reading)
    assert counted.value == pytest.approx(0.030, rel=0.02)
    lane = play(30.0, sync_every=40, first=27)
    told = device_of(lane)
    assert isinstance(told.seconds, Missing)
    assert "stood still 2 times" in told.seconds.reason
    # A trainer that waited for a core as long was held up by the scheduler.
    assert device_of(lane, queued_ns=60e6).mode == "within"
    line = HotLine(
        line="train.py:9",
        function="main",
        source="loss.item()",
        share=1.0,
        samples=3,
        own=True,
        stage="sync",
    )
    assert isinstance(device_of(lane, [line]).seconds, Reading)


def test_the_devices_own_clock_needs_no_waits() -> None:
    told = read_device_clock(Reading(value=0.4, unit="frac", low=0.38, high=0.42, level=95), 50e6)
    assert told is not None
    assert isinstance(told.seconds, Reading)
    told.seconds.check()
    assert told.seconds.value == pytest.approx(0.030)
    assert read_device_clock(Missing(reason="no CUDA"), 50e6) is None


def test_a_queue_that_held_the_host_up_only_now_and_then_tells_nothing() -> None:
    lane = play(0.0, sync_every=0, host_ms=30.0)
    assert device_of(lane, blocked=0.9).mode == "within"


def test_loops_that_are_longer_at_every_tenth_step_are_waits_though_all_loops_are_long() -> None:
    """Each loop works for 20 ms, more or less, and every tenth waits for the device as well."""
    rng, lane = random.Random(5), Lane()
    for number in range(200):
        lane.batch(10).gap(4).backward(4).optimizer(2)
        lane.gap(rng.uniform(10, 30) + (12 if number % 10 == 0 else 0))
    lane.batch(1)
    told = device_of(lane)
    assert told.mode == "beside"
    assert told.sync_frac == pytest.approx(0.1, abs=0.01)


def test_a_host_that_only_pauses_between_batches_does_not_stand_for_a_device() -> None:
    lane = Lane()
    for _ in range(60):
        lane.batch(5).add(Kind.PAUSE, 3, 1000)
    lane.batch(5)
    told = device_of(lane)
    assert told.seconds == Missing(reason="compute parts of the host: none")
    assert told.mode == "within"
