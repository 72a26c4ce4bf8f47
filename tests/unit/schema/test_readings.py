"""An interval says how often it is to hold the value, and only like is combined with like."""

import ast

import pytest

from fuelline.schema.readings import Reading, common_level
from fuelline.schema.student import Level
from tests.contract.source import FILES, SOURCE, parse

HAVE_INTERVALS = {"Reading", "Estimate", "Change", "JitterForecast"}


def reading(level: Level | None) -> Reading:
    return Reading(value=1.0, unit="s", low=0.9, high=1.1, level=level)


def test_intervals_of_one_level_become_one_of_that_level() -> None:
    assert common_level([reading(90), reading(90)]) == 90
    assert common_level([reading(95), reading(None)]) is None
    assert common_level([]) is None


def test_intervals_of_different_levels_are_not_combined() -> None:
    with pytest.raises(ValueError, match="different levels"):
        common_level([reading(90), reading(95)])


def test_whoever_makes_an_interval_says_its_level() -> None:
    silent = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in HAVE_INTERVALS
        and {"low", "level"} & (given := {keyword.arg for keyword in node.keywords})
        and not {"low", "high", "level"} <= given
    ]
    assert not silent
