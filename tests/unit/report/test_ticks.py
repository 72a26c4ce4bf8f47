"""Ticks are round, inside the axis, few, and whole where things are counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.report.renderers.charts import Axis
from fuelline.report.renderers.ticks import make_ticks, tick_words

POSITIVE = st.floats(1e-9, 1e15)


@pytest.mark.parametrize(
    ("values", "log", "ticks"),
    [
        ((1, 256), True, [1, 2, 5, 10, 20, 50, 100, 200]),
        ((0.001, 1000), True, [0.001, 0.01, 0.1, 1, 10, 100, 1000]),
        ((2, 5), False, [2, 3, 4, 5]),
        ((0.0, 40.5), False, [0, 5, 10, 15, 20, 25, 30, 35, 40][::2]),
    ],
)
def test_ticks_are_the_numbers_that_people_would_choose(
    values: tuple[float, float], log: bool, ticks: list[float]
) -> None:
    assert make_ticks(Axis(values, 100, log=log), 8) == pytest.approx(ticks)


@given(POSITIVE, POSITIVE, st.booleans(), st.integers(3, 9))
def test_ticks_are_few_and_inside_the_axis(one: float, other: float, log: bool, most: int) -> None:
    axis = Axis((one, other), 100, log=log)
    ticks = make_ticks(axis, most)
    assert 2 <= len(ticks) <= most
    assert ticks == sorted(ticks)
    for tick in ticks:
        assert axis.share(tick) is not None
        assert len(tick_words(tick)) <= 10


def test_round_numbers_are_written_in_full() -> None:
    words = [tick_words(tick) for tick in (0.25, 2, 2000, 2.5e6, 1e12)]
    assert words == ["0.25", "2", "2k", "2.5M", "1T"]
