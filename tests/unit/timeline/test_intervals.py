"""mean_overlap against an oracle that looks at every nanosecond."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.timeline.intervals import mean_overlap

INTERVALS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 20)).map(lambda pair: (pair[0], sum(pair))),
    min_size=1,
    max_size=12,
)


def count_by_hand(intervals: list[tuple[int, int]]) -> list[float]:
    """How many intervals are open in each nanosecond of an interval, on average."""

    def open_at(moment: int) -> int:
        return sum(start <= moment < end for start, end in intervals)

    return [sum(map(open_at, range(start, end))) / (end - start) for start, end in intervals]


@given(INTERVALS)
def test_mean_overlap_equals_counting_by_hand(intervals: list[tuple[int, int]]) -> None:
    starts, ends = (pl.Series(column, dtype=pl.Int64) for column in zip(*intervals, strict=True))
    assert mean_overlap(starts, ends).to_list() == pytest.approx(count_by_hand(intervals))


def test_mean_overlap_of_the_documented_example() -> None:
    assert mean_overlap(pl.Series([0, 5]), pl.Series([10, 10])).to_list() == [1.5, 2.0]


def test_mean_overlap_of_an_interval_without_length_is_not_a_number() -> None:
    assert mean_overlap(pl.Series([5]), pl.Series([5])).is_nan().all()
