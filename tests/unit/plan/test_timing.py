"""Rounds, medians and their intervals, on a clock of our own."""

from __future__ import annotations

import pytest

from fuelline.plan.roofline.timing import (
    Rounds,
    TimedProbe,
    find_spread,
    median_reading,
    rate_reading,
)


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_each_probe_gets_one_value_a_round() -> None:
    clock = FakeClock()

    def spend(seconds: float) -> object:
        def run() -> None:
            clock.now += seconds

        return run

    probes = [TimedProbe("slow", spend(0.5)), TimedProbe("fast", spend(1e-4))]  # type: ignore[arg-type]
    rounds = Rounds(probes, clock, lambda: None)
    for _ in range(7):
        rounds.take()
    times = rounds.times
    assert times["slow"] == pytest.approx([0.5] * 7)
    assert times["fast"] == pytest.approx([1e-4] * 7)


def test_the_device_is_settled_before_and_after_each_sample() -> None:
    clock, settled = FakeClock(), []
    probe = TimedProbe("launch", lambda: settled.append("run"))
    Rounds([probe], _tick(clock), lambda: settled.append("settle")).take()
    assert settled[0] == "settle"
    assert settled[-1] == "settle"


def _tick(clock: FakeClock) -> FakeClock:
    class Ticking(FakeClock):
        def __call__(self) -> float:
            self.now += 1.0
            return self.now

    del clock
    return Ticking()


def test_one_disturbed_round_does_not_move_the_median() -> None:
    quiet, disturbed = [1.0] * 8 + [1.1], [1.0] * 8 + [50.0]
    assert median_reading(quiet, "s", "").value == median_reading(disturbed, "s", "").value


def test_the_interval_holds_the_value() -> None:
    for count in range(1, 12):
        found = median_reading([float(each) for each in range(count)], "s", "")
        found.check()
        rate_reading(10.0, [1.0 + each for each in range(count)], "1/s", "").check()


def test_the_spread_is_that_of_the_rounds_and_not_of_the_probes() -> None:
    quiet = {"fast": [1.0, 1.01, 0.99] * 3, "slow": [50.0, 50.2, 49.8] * 3}
    assert find_spread(quiet) < 0.02
    disturbed = {name: [each * (1 + 0.5 * (turn % 3)) for turn, each in enumerate(times)]
                 for name, times in quiet.items()}  # fmt: skip
    assert find_spread(disturbed) > 0.2
    one_burst = {name: [*times[:-1], 9 * times[-1]] for name, times in quiet.items()}
    assert find_spread(one_burst) < 0.02
