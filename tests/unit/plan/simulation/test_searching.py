"""The smallest number that is enough, from any guess."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fuelline.plan.simulation.fleet import FINE, find_first


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 50))
def test_any_guess_finds_the_first_that_is_enough(needed: int, guess: int, fewest: int) -> None:
    most = 400
    guess, true = max(guess, fewest), max(needed, fewest)
    found = find_first(lambda size: size >= needed, guess, fewest, most)
    assert true <= found <= true + max(true // FINE, 0) + 1
    if true < FINE:
        assert found == true


@given(st.integers(1, 300))
def test_nothing_is_found_where_nothing_is_enough(guess: int) -> None:
    assert find_first(lambda _: False, guess, 1, 300) == 0


def test_a_good_guess_is_asked_about_a_few_times_only() -> None:
    asked: list[int] = []

    def enough(size: int) -> bool:
        asked.append(size)
        return size >= 41

    assert find_first(enough, 42, 1, 4096) == 41
    assert len(asked) <= 4
