"""A fixed piece of Python as a measure of the core."""

from fuelline.record.samplers.clocks import time_spin


def test_the_piece_takes_some_time_and_not_much() -> None:
    assert 1_000 < min(time_spin() for _ in range(20)) < 20_000_000
