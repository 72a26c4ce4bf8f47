"""Counters were written down only when they changed; cores are what they add up to."""

import pytest

from fuelline.schema.diagnosis.facts import CoreFacts
from fuelline.schema.readings import Missing
from fuelline.schema.run.samples import Limits
from fuelline.signals.recorded.counters import growth, latest, process_growth
from tests.unit.builders import START_NS, Lane, facts_of, judge, make_timeline

S = 10**9


def ten_seconds() -> Lane:
    """A window from second 1 to second 11."""
    lane = Lane()
    for _ in range(11):
        lane.step(wait=100, forward=200, backward=600, opt=100)
    return lane


def timeline_with(**tables):
    timeline = make_timeline(ten_seconds(), **tables)
    return timeline, judge(timeline)[1]


def counter(*rows: tuple[float, float], name: str = "disk.x") -> list[tuple]:
    return [(START_NS + int(second * S), name, float(value)) for second, value in rows]


BEAT = counter(*((second, second) for second in range(12)), name="disk.beat")
"""Another value of the same source changes every second: so often was the source read."""


@pytest.mark.parametrize(
    ("rows", "grown"),
    [
        ([(0, 5), (5, 15), (10, 25)], 20),
        ([(0, 5), (5, 15), (10, 25), (20, 99)], 20),  # what came after the window is not counted
        ([(0.2, 3), (0.9, 7), (5, 20)], 13),  # the last value before the window is its beginning
        ([(0, 5)], 0),  # never written again: it did not change
        ([(0, 5), (30, 50)], 0),  # changed only after the window
        ([(3, 100), (8, 140)], 50),  # seen for 8 of 10 seconds, which stand for all of them
        ([(0, 50), (5, 10)], 0),  # a counter that was reset did not grow
    ],
)
def test_growth_knows_that_only_changes_were_written(rows: list, grown: float) -> None:
    assert growth(*timeline_with(host=counter(*rows) + BEAT), "disk.x") == pytest.approx(grown)


def test_growth_does_not_depend_on_the_order_of_the_rows() -> None:
    rows = counter((0, 5), (5, 15), (10, 25)) + BEAT
    assert growth(*timeline_with(host=rows[::-1]), "disk.x") == pytest.approx(20)


def test_a_counter_that_was_never_read_is_unknown() -> None:
    assert growth(*timeline_with(host=BEAT), "disk.x") is None


def test_a_counter_that_was_read_once_is_unknown() -> None:
    assert growth(*timeline_with(host=counter((5, 3))), "disk.x") is None


def test_a_counter_that_was_first_read_after_the_window_is_unknown() -> None:
    assert growth(*timeline_with(host=counter((20, 5)) + BEAT), "disk.x") is None


def test_another_source_does_not_tell_when_a_counter_was_read() -> None:
    beat = counter((1, 1), (11, 2), name="psi.io.some_us")
    assert growth(*timeline_with(host=counter((5, 3)) + beat), "disk.x") is None


def test_latest_is_the_last_value_of_a_gauge() -> None:
    timeline, _ = timeline_with(host=counter((5, 2), (1, 1)))
    assert latest(timeline, "disk.x") == 2
    assert latest(timeline, "disk.y") is None


def process(second: float, pid: int, cpu_ns: float) -> tuple:
    return (START_NS + int(second * S), pid, int(cpu_ns), *(0,) * 7)


def grown_s(rows: list[tuple]) -> float:
    grown = process_growth(*timeline_with(processes=rows), "cpu_ns")
    assert grown is not None
    return grown / S


def test_a_process_that_was_there_before_the_window_counts_from_its_beginning() -> None:
    assert grown_s([process(s, 1, (s + 7) * S) for s in (0, 1, 6, 11)]) == pytest.approx(10)


def test_a_process_that_began_inside_the_window_counts_in_full() -> None:
    old = [process(s, 1, 0) for s in (0, 1, 11)]
    assert grown_s([*old, process(4, 2, 3 * S), process(8, 2, 5 * S)]) == pytest.approx(5)


def test_the_growth_until_the_last_sample_stands_for_the_window() -> None:
    assert grown_s([process(s, 1, s * S) for s in (1, 3, 6)]) == pytest.approx(10)


def test_a_sample_just_after_the_window_began_does_not_stand_for_a_second_of_it() -> None:
    """The window begins at 1 s: a core was busy all the time, and not ten of them."""
    assert grown_s([process(s, 1, s * S) for s in (0.1, 1.1)]) == pytest.approx(10)


def test_what_was_used_before_a_process_fell_idle_is_not_of_the_window() -> None:
    beat = [process(s, 2, 0) for s in (0, 1, 2, 3, 4, 5, 11)]
    quiet = [process(0, 1, 0), process(5, 1, 1 * S), process(11, 1, 1 * S)]
    assert grown_s([*beat, *quiet]) == pytest.approx(1)


def test_samples_from_before_or_after_the_window_alone_say_nothing() -> None:
    for seconds in ((0, 0.5), (20, 21)):
        rows = [process(s, 1, s * S) for s in seconds]
        assert process_growth(*timeline_with(processes=rows), "cpu_ns") is None


def test_what_the_kernel_refused_is_unknown() -> None:
    rows = [process(2, 1, -1), process(6, 1, -1)]
    assert process_growth(*timeline_with(processes=rows), "cpu_ns") is None


def cores_of(quota: float | None = None, **tables) -> CoreFacts:
    limits = Limits(START_NS, 4, 8, quota, None, {})
    return facts_of(make_timeline(ten_seconds(), facts={"limits": (limits,)}, **tables)).cores


def test_allowed_cores_are_the_narrower_of_affinity_and_quota() -> None:
    assert cores_of().allowed.value == 4
    assert cores_of(quota=1.5).allowed.value == 1.5
    assert cores_of(quota=6).allowed.value == 4
    assert cores_of().host.value == 8


def test_used_and_others_and_idle_are_cores_on_average() -> None:
    cores = cores_of(
        processes=[process(s, 1, 2 * s * S) for s in range(12)],
        host=[
            *counter(*((s, 5 * s * S) for s in range(12)), name="cpu.busy_ns"),
            *counter(*((s, 3 * s * S) for s in range(12)), name="cpu.idle_ns"),
        ],
    )
    assert cores.used.value == pytest.approx(2)
    assert cores.others.value == pytest.approx(3)
    assert cores.idle.value == pytest.approx(3)


def test_throttling_is_a_share_of_the_schedulers_periods() -> None:
    periods = counter(*((s, s * 10) for s in range(12)), name="cgroup.cpu.periods")
    stopped = counter(*((s, s * 2) for s in range(12)), name="cgroup.cpu.throttled_periods")
    assert cores_of(host=[*periods, *stopped]).throttled_share.value == pytest.approx(0.2)


def test_throttling_is_unknown_without_a_quota() -> None:
    none = counter(*((s, 0) for s in range(12)), name="cgroup.cpu.periods")
    never = counter(*((s, 0) for s in range(12)), name="cgroup.cpu.throttled_periods")
    assert isinstance(cores_of(host=[*none, *never]).throttled_share, Missing)
    assert isinstance(cores_of().throttled_share, Missing)


def test_without_an_observer_nothing_is_known_about_cores() -> None:
    cores = facts_of(make_timeline(ten_seconds())).cores
    for name in ("allowed", "host", "used", "idle", "others", "throttled_share"):
        assert isinstance(getattr(cores, name), Missing), name
