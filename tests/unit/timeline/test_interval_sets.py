"""Interval algebra against an oracle that counts single moments."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuelline.timeline import intervals as algebra
from fuelline.timeline.intervals import (
    covered_ns,
    intersect,
    merge,
    merge_all,
    nothing,
    partition,
    subtract,
    total_ns,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

Pairs = list[tuple[int, int]]

pairs = st.lists(
    st.tuples(st.integers(-20, 40), st.integers(-3, 12)).map(lambda p: (p[0], p[0] + p[1])),
    max_size=12,
)


def frame(intervals: Pairs) -> pl.DataFrame:
    schema = {"start_ns": pl.Int64, "end_ns": pl.Int64}
    return pl.DataFrame(intervals, schema=schema, orient="row")


def moments(intervals: Pairs) -> set[int]:
    return {at for start, end in intervals for at in range(start, end)}


def moments_of(a_set: pl.DataFrame) -> set[int]:
    return moments(list(a_set.select("start_ns", "end_ns").iter_rows()))


def is_a_set(found: pl.DataFrame) -> bool:
    rows = list(found.iter_rows())
    return all(start < end for start, end in rows) and all(
        one[1] < other[0] for one, other in pairwise(rows)
    )


@pytest.fixture(autouse=True, params=[2, 65_536], ids=["in slices", "at once"])
def _rows(request: pytest.FixtureRequest) -> Iterator[None]:
    """Large sets are looked at in slices, which must change nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(algebra, "_ROWS", request.param)
        yield


@given(pairs)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_merge_covers_the_same_moments_with_fewest_intervals(one: Pairs) -> None:
    found = merge(frame(one))
    assert is_a_set(found)
    assert moments_of(found) == moments(one)
    assert total_ns(found) == len(moments(one))


@given(pairs, pairs)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_intersect_subtract_and_merge_all_are_those_of_sets(one: Pairs, other: Pairs) -> None:
    left, right = merge(frame(one)), merge(frame(other))
    assert moments_of(intersect(left, right)) == moments(one) & moments(other)
    assert moments_of(subtract(left, right)) == moments(one) - moments(other)
    assert moments_of(merge_all([left, right])) == moments(one) | moments(other)
    assert is_a_set(intersect(left, right))
    assert is_a_set(subtract(left, right))


@given(pairs, st.lists(pairs, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_partition_gives_each_moment_to_the_first_layer(whole: Pairs, layers: list[Pairs]) -> None:
    found = partition(merge(frame(whole)), [merge(frame(layer)) for layer in layers])
    said = {at: layer for start, end, layer in found.iter_rows() for at in range(start, end)}
    expected = {
        at: next((n for n, layer in enumerate(layers) if at in moments(layer)), None)
        for at in moments(whole)
    }
    assert said == expected
    assert int((found["end_ns"] - found["start_ns"]).sum() or 0) == len(moments(whole))


@given(pairs, pairs)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_covered_counts_the_moments_of_each_interval(intervals: Pairs, other: Pairs) -> None:
    intervals = [pair for pair in intervals if pair[0] <= pair[1]]
    found = covered_ns(frame(intervals), merge(frame(other)))
    assert found.to_list() == [len(moments([pair]) & moments(other)) for pair in intervals]


@pytest.mark.parametrize("operation", [intersect, subtract])
def test_nothing_stays_nothing(operation: object) -> None:
    assert operation(nothing(), nothing()).height == 0  # type: ignore[operator]
