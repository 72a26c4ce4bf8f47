"""Counters were written down only when they changed; cores are what they add up to."""

import pytest

from fuelline.schema.facts import CoreFacts
from fuelline.schema.readings import Missing
from fuelline.schema.samples import Limits
from fuelline.signals.counters import growth, latest, process_growth, sampled_seconds
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


def counter(*rows: tuple[float, float], name: str = "x") -> list[tuple]:
    return [(START_NS + int(second * S), name, float(value)) for second, value in rows]


@pytest.mark.parametrize(
    ("rows", "grown"),
    [
        ([(0, 5), (5, 15), (10, 25)], 20),
        ([(0, 5), (5, 15), (10, 25), (20, 99)], 20),  # what came after the window is not counted
        ([(0.2, 3), (0.9, 7), (5, 20)], 13),  # the last value before the window is its beginning
        ([(0, 5)], 0),  # never written again: it did not change
        ([(0, 5), (30, 50)], 0),  # changed only after the window
        ([(3, 100), (8, 140)], 40),  # first read inside the window
        ([(0, 50), (5, 10)], 0),  # a counter that was reset did not grow
    ],
)
def test_growth_knows_that_only_changes_were_written(rows: list, grown: float) -> None:
    assert growth(*timeline_with(host=counter(*rows)), "x") == grown


def test_growth_does_not_depend_on_the_order_of_the_rows() -> None:
    rows = counter((0, 5), (5, 15), (10, 25))
    assert growth(*timeline_with(host=rows[::-1]), "x") == 20


def test_a_counter_that_was_never_read_is_unknown() -> None:
    assert growth(*timeline_with(host=counter((0, 5), name="y")), "x") is None


def test_a_counter_that_was_first_read_after_the_window_is_unknown() -> None:
    assert growth(*timeline_with(host=counter((20, 5))), "x") is None


def test_latest_is_the_last_value_of_a_gauge() -> None:
    timeline, _ = timeline_with(host=counter((5, 2), (1, 1)))
    assert latest(timeline, "x") == 2
    assert latest(timeline, "y") is None


def process(second: float, pid: int, cpu_ns: float) -> tuple:
    return (START_NS + int(second * S), pid, int(cpu_ns), *(0,) * 7)


def test_process_growth_sums_over_processes_inside_the_window() -> None:
    rows = [process(0, 1, 0), *(process(s, 1, s * S) for s in (2, 6, 10))]
    rows += [process(4, 2, 3 * S), process(8, 2, 5 * S), process(9, 3, 77 * S)]
    timeline, tiling = timeline_with(processes=rows)
    assert process_growth(timeline, tiling, "cpu_ns") == 8 * S + 2 * S
    assert sampled_seconds(timeline, tiling) == 8


def test_process_growth_leaves_out_what_the_kernel_refused() -> None:
    timeline, tiling = timeline_with(processes=[process(2, 1, -1), process(6, 1, -1)])
    assert process_growth(timeline, tiling, "cpu_ns") is None
    assert sampled_seconds(*timeline_with()) == 0


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


def test_throttling_is_a_share_of_the_window() -> None:
    rows = counter(*((s, s * 0.2e6) for s in range(12)), name="cgroup.cpu.throttled_us")
    assert cores_of(host=rows).throttled_share.value == pytest.approx(0.2)
    assert isinstance(cores_of().throttled_share, Missing)


def test_without_an_observer_nothing_is_known_about_cores() -> None:
    cores = facts_of(make_timeline(ten_seconds())).cores
    for name in ("allowed", "host", "used", "idle", "others", "throttled_share"):
        assert isinstance(getattr(cores, name), Missing), name
