"""Copies, synchronisations and the device's own clock."""

import pytest

from fuelline.schema.readings import Missing
from fuelline.schema.wire import Flag, Kind
from tests.unit.builders import MS, Lane, facts_of, make_timeline


def steps_with_copies(flags: int, count: int = 6) -> Lane:
    lane = Lane()
    for _ in range(count):
        lane.batch(2).add(Kind.COPY, 4, 40_000_000, flags=flags).gap(4).backward(10).optimizer(2)
    return lane


def test_copies_from_pageable_memory_that_wait_are_told_with_their_rate() -> None:
    transfer = facts_of(make_timeline(steps_with_copies(0))).transfer
    assert transfer.pageable_share.value == 1
    assert transfer.blocking_share.value == 1
    assert transfer.bytes_per_s.value == pytest.approx(1e10)


def test_a_pinned_copy_that_nobody_waits_for_is_neither() -> None:
    transfer = facts_of(make_timeline(steps_with_copies(Flag.PINNED | Flag.NON_BLOCKING))).transfer
    assert transfer.pageable_share.value == 0
    assert transfer.blocking_share.value == 0


def test_without_copies_there_is_nothing_to_say_about_them() -> None:
    transfer = facts_of(make_timeline(Lane().step().step().step())).transfer
    assert isinstance(transfer.pageable_share, Missing)
    assert isinstance(transfer.device_idle_share, Missing)
    assert transfer.syncs_per_step.value == 0


def test_reads_of_a_value_are_counted_per_step() -> None:
    lane = Lane().step()
    for _ in range(4):
        lane.batch(2).gap(4).backward(10).optimizer(2).add(Kind.SYNC, 3, 0, flags=Flag.IMPLICIT)
    assert facts_of(make_timeline(lane)).transfer.syncs_per_step.value == 1


@pytest.mark.parametrize(("idle_ms", "exposed"), [(0, 0.0), (5, 5 / 37), (10, 10 / 37)])
def test_the_devices_clock_says_how_much_of_a_wait_was_hidden(idle_ms: int, exposed: float) -> None:
    lane = Lane()
    for _ in range(30):
        lane.step(wait=10, forward=5, backward=20, opt=2)
        lane.put(Kind.DEVICE_STEP, lane.now_ns - 1, 0, 0, (37 - idle_ms) * MS, idle_ms * MS)
    facts = facts_of(make_timeline(lane))
    assert facts.transfer.device_idle_share.value == pytest.approx(idle_ms / 37)
    assert facts.input.wait_share.value == pytest.approx(10 / 37)
    assert facts.input.exposed_share.value == pytest.approx(exposed, abs=1e-3)
