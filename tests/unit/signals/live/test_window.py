"""Sums over the last seconds are those of the events in them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fuelline.signals.live.window import WINDOW_NS, Buckets

SECOND = 10**9
QUARTER = SECOND // 4


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from("ab"), st.integers(1, 9)), max_size=40),
    st.lists(st.integers(0, 40), max_size=4),
)
def test_a_total_is_that_of_what_lies_in_the_last_seconds(
    events: list[tuple[int, str, int]], looks: list[int]
) -> None:
    buckets, added = Buckets(), list[tuple[int, str, int]]()
    now_ns = 0
    for at_s, name, amount in sorted(events):
        buckets.add(at_s * SECOND, name, amount)
        added.append((at_s * SECOND, name, amount))
        now_ns = at_s * SECOND
        if at_s in looks:
            buckets.total(now_ns)
    expected: Counter[str] = Counter()
    for at_ns, name, amount in added:
        if at_ns // QUARTER >= (now_ns - WINDOW_NS) // QUARTER + 1:
            expected[name] += amount
    assert +buckets.total(now_ns) == expected


def test_a_stretch_is_divided_among_its_buckets_and_a_long_one_keeps_its_end() -> None:
    buckets = Buckets()
    buckets.add_span(0, 100 * SECOND, "a")
    assert buckets.total(100 * SECOND)["a"] == WINDOW_NS - QUARTER
