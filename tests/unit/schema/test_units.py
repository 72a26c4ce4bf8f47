"""Numbers for people."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.schema.units import duration, number, parameters, percent, rate, size


@pytest.mark.parametrize(
    ("frac", "words"),
    [
        (0.614, "61 %"),
        (1, "100 %"),
        (0, "0 %"),
        (0.0994, "9.9 %"),
        (0.0996, "10 %"),
        (0.005, "0.5 %"),
    ],
)
def test_percent(frac: float, words: str) -> None:
    assert percent(frac) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (7260, "2 h 1 min"),
        (95, "1 min 35 s"),
        (12.34, "12.3 s"),
        (0.0112, "11.2 ms"),
        (0.15, "150 ms"),
        (25e-6, "25.0 us"),
        (300e-9, "300 ns"),
        (0, "0 s"),
        (2.25e7, "260 days"),
    ],
)
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (131072, "131 kB"), (2.5e9, "2.5 GB"), (3e13, "30.0 TB")],
)
def test_size_and_rate(size_bytes: float, words: str) -> None:
    assert size(size_bytes) == words
    assert rate(size_bytes) == f"{words}/s"


@pytest.mark.parametrize(
    ("value", "words"), [(2.04, "2.0"), (1843.2, "1,843"), (2.0, "2"), (0.5, "0.5"), (100.4, "100")]
)
def test_number(value: float, words: str) -> None:
    assert number(value) == words


@pytest.mark.parametrize(("seconds", "words"), [(59.99, "1 min 0 s"), (3599.9, "1 h 0 min")])
def test_a_duration_is_rounded_before_it_is_split(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@given(st.floats(0, 1e7))
def test_no_duration_has_sixty_seconds_or_minutes(seconds: float) -> None:
    assert not {"60 s", "60.0 s", "60 min"} & set(re.findall(r"[\d.]+ \w+", duration(seconds)))


@pytest.mark.parametrize(
    ("count", "words"),
    [(70_553_706_496, "70.6B"), (1.6e12, "1.6T"), (12e6, "12M"), (4096, "4,096")],
)
def test_parameters_are_counted_as_models_are_named(count: float, words: str) -> None:
    assert parameters(count) == words
