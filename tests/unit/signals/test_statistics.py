"""Numbers with their doubt."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.schema.readings import Missing, Reading
from fuelline.signals.statistics import proportion, ratio, slope

POSITIVE = st.floats(0, 1e12)
ROWS = st.lists(st.tuples(POSITIVE, st.floats(0.001, 1e12)), min_size=1, max_size=80)


@given(ROWS)
def test_the_interval_of_a_ratio_holds_its_value(rows: list[tuple[float, float]]) -> None:
    parts, wholes = (pl.Series(column) for column in zip(*rows, strict=True))
    reading = ratio(parts, wholes, "frac", "test")
    assert isinstance(reading, Reading)
    reading.check()
    assert reading.value == pytest.approx(parts.sum() / wholes.sum())
    assert reading.count == len(rows)


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_the_interval_of_a_proportion_holds_its_value(total: int, share: float) -> None:
    reading = proportion(share * total, total, "test")
    assert isinstance(reading, Reading)
    reading.check()
    assert 0 <= reading.low <= reading.value <= reading.high <= 1


def test_more_samples_make_a_narrower_interval() -> None:
    few, many = proportion(5, 10, "few"), proportion(500, 1000, "many")
    assert many.high - many.low < (few.high - few.low) / 5


def test_few_rows_give_a_ratio_without_interval() -> None:
    reading = ratio(pl.Series([1.0] * 19), pl.Series([2.0] * 19), "frac", "test")
    assert (reading.value, reading.low, reading.high) == (0.5, None, None)


def test_dividing_by_nothing_is_missing_not_zero() -> None:
    assert isinstance(ratio(pl.Series([1.0]), pl.Series([0.0]), "frac", "test"), Missing)
    assert isinstance(proportion(0, 0, "test"), Missing)


@given(st.floats(-5, 5), st.floats(-100, 100))
def test_slope_finds_a_straight_line(steepness: float, offset: float) -> None:
    x = pl.Series([float(number) for number in range(10)])
    value, error = slope(x, x * steepness + offset)
    assert value == pytest.approx(steepness, abs=1e-9)
    assert error == pytest.approx(0, abs=1e-6)


def test_slope_needs_five_points_and_some_spread() -> None:
    assert slope(pl.Series([1.0, 2.0, 3.0, 4.0]), pl.Series([1.0, 2.0, 3.0, 4.0])) is None
    assert slope(pl.Series([3.0] * 9), pl.Series([float(n) for n in range(9)])) is None


def test_a_reading_whose_interval_misses_its_value_is_refused() -> None:
    for low, high in ((0.6, None), (None, 0.4)):
        with pytest.raises(ValueError, match=r"test: (low|high)"):
            Reading(value=0.5, unit="frac", low=low, high=high, origin="test").check()


@pytest.mark.parametrize("hits", [-1.0, 7.0])
def test_a_share_that_cannot_be_is_missing(hits: float) -> None:
    found = proportion(hits, 5.0, "samples")
    assert isinstance(found, Missing)
    assert "cannot be" in found.reason
