"""Student's t, as tables have it."""

import pytest

from fuelline.schema.student import Level, compare_means, find_t


@pytest.mark.parametrize(
    ("degrees", "level", "expected"),
    [
        (1, 95, 12.71),
        (9, 95, 2.26),
        (9, 90, 1.83),
        (11, 95, 2.23),
        (8, 99, 3.36),
        (10_000, 95, 1.96),
    ],
)
def test_t_is_that_of_the_next_lower_entry(degrees: int, level: Level, expected: float) -> None:
    assert find_t(degrees, level) == expected


def test_less_than_one_degree_of_freedom_is_taken_for_one() -> None:
    assert find_t(0.3) == find_t(1)


def test_intervals_become_narrower_with_more_freedom_and_wider_with_their_level() -> None:
    values = [find_t(degrees) for degrees in range(1, 200)]
    assert values == sorted(values, reverse=True)
    assert all(find_t(degrees, 90) < find_t(degrees, 95) for degrees in range(1, 200))


def test_a_ratio_of_means_is_as_uncertain_the_other_way_round() -> None:
    ratio, (low, high) = compare_means([10.0, 11.0, 9.0], [20.0, 23.0, 17.0])
    turned, (turned_low, turned_high) = compare_means([20.0, 23.0, 17.0], [10.0, 11.0, 9.0])
    assert ratio == pytest.approx(2.0)
    assert (1 / turned, 1 / turned_high, 1 / turned_low) == pytest.approx((ratio, low, high))
    assert 0 < low < ratio < high
