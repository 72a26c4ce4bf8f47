"""The cost of jitter with more ranks is the expected maximum of independent draws."""

import random

import polars as pl
import pytest

from fuelline.signals.ranks import jitter
from fuelline.signals.ranks.jitter import forecast_jitter
from fuelline.timeline.collectives import MatchedCollectives

HARMONIC = {2: 0.5, 4: 1 + 1 / 2 + 1 / 3 + 1 / 4 - 1, 16: sum(1 / n for n in range(1, 17)) - 1}
"""Expected maximum of n exponential draws of mean 1, less that mean."""


def meet(steps: int, draw, ranks: int = 2) -> MatchedCollectives:  # type: ignore[no-untyped-def]
    rows, done_ns = [], 0
    for step in range(steps):
        arrivals = [done_ns + int(draw(step, rank) * 1e9) for rank in range(ranks)]
        done_ns = max(arrivals)
        rows.append((*arrivals, *[done_ns] * ranks))
    names = [f"{name}_ns_{rank}" for name in ("arrive", "done") for rank in range(ranks)]
    return MatchedCollectives(pl.DataFrame(rows, schema=names, orient="row"), tuple(range(ranks)))


def waits(matched: MatchedCollectives) -> dict[int, float]:
    told = forecast_jitter(matched, pl.int_range(matched.frame.height, eager=True))
    assert all(each.low <= each.wait_seconds <= each.high for each in told)
    return {each.ranks: each.wait_seconds for each in told}


@pytest.mark.parametrize("common", [0.0, 5.0])
def test_exponential_jitter_of_two_ranks_foretells_four(common: float) -> None:
    rng = random.Random(1)
    shared = [rng.random() * common for _ in range(3000)]
    found = waits(meet(3000, lambda step, _: shared[step] + 0.02 + rng.expovariate(1 / 0.01)))
    assert found[2] == pytest.approx(0.01 * HARMONIC[2], rel=0.1)
    assert found[4] == pytest.approx(0.01 * HARMONIC[4], rel=0.2)


def test_a_constant_difference_between_ranks_is_not_jitter() -> None:
    found = waits(meet(100, lambda _, rank: 0.02 + 0.05 * rank))
    assert max(found.values()) == pytest.approx(0, abs=1e-6)


def test_few_steps_foretell_nothing() -> None:
    assert waits(meet(10, lambda *_: 0.02)) == {}


def test_an_hour_of_draws_may_be_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(2)
    steps = [[rng.expovariate(1) ** 2 for _ in range(2)] for _ in range(3001)]
    matched = meet(3001, lambda step, rank: steps[step][rank])
    whole = waits(matched)
    monkeypatch.setattr(jitter, "_MOST_DRAWS", 1000)
    thinned = waits(matched)
    assert thinned != whole
    assert thinned == pytest.approx(whole, rel=0.02)
