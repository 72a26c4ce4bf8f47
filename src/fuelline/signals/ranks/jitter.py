"""What jitter costs with more ranks: the expected maximum over them.

A step takes as long as the slowest rank's. What one rank needs for itself is drawn from the
measured distribution; ranks are taken as independent. What they have in common (a step that is long
for all) is taken out first, so that it is not counted as jitter. The interval comes from blocks of
steps.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Final

import polars as pl

from fuelline.schema.diagnosis.findings import JitterForecast
from fuelline.schema.student import find_t

if TYPE_CHECKING:
    from fuelline.timeline.collectives import MatchedCollectives

_FOLDS = (1, 2, 4, 8)
"""Now, and with this many times the ranks."""
_LEVEL: Final = 90
_BLOCKS = 10
_FEW_STEPS = 2 * _BLOCKS
_MOST_DRAWS = 20_000
"""Order statistics that stand for all: the maximum of 512 ranks rests on the last 40 of them."""


def forecast_jitter(matched: MatchedCollectives, steps: pl.Series) -> list[JitterForecast]:
    """Seconds per step that ranks wait for the slowest, now and with more of them.

    `steps` gives the step of each row of `matched`. Empty if too few steps were matched.
    """
    own = _own_times(matched, steps)
    ranks = len(own.columns) - 1
    if own.height < _FEW_STEPS or ranks < 2:
        return []
    draws, *blocks = (_thin(_individual_part(each).sort()) for each in (own, *_split(own)))
    return [_forecast(draws, blocks, ranks, ranks * fold) for fold in _FOLDS]


def _own_times(matched: MatchedCollectives, steps: pl.Series) -> pl.DataFrame:
    """Seconds that each rank needed for itself: a row per step, a column per rank.

    From the end of the last collective to the arrival at the next, summed over a step.
    """
    own = [
        (arrive - done.forward_fill().shift(1)).alias(f"{rank}")
        for rank, arrive, done in zip(
            matched.ranks, matched.of("arrive_ns"), matched.of("done_ns"), strict=True
        )
    ]
    return (
        matched.frame.select(steps.alias("step"), *own)
        .slice(1)
        .group_by("step")
        .agg(pl.all().sum() / 1e9)
        .sort("step")
    )


def _split(own: pl.DataFrame) -> list[pl.DataFrame]:
    size = own.height // _BLOCKS
    return [own.slice(at * size, size) for at in range(_BLOCKS)]


def _forecast(draws: pl.Series, blocks: list[pl.Series], ranks: int, wanted: int) -> JitterForecast:
    value = _expected_wait(draws, wanted)
    parts = pl.Series([_expected_wait(block, wanted) for block in blocks])
    half = find_t(_BLOCKS - 1, _LEVEL) * float(parts.std()) / math.sqrt(_BLOCKS)  # type: ignore[arg-type]
    return JitterForecast(
        ranks=wanted,
        is_measured=wanted == ranks,
        wait_seconds=value,
        low=max(0.0, value - half),
        high=value + half,
        level=_LEVEL,
    )


def _expected_wait(draws: pl.Series, ranks: int) -> float:
    """Expected maximum of this many draws, less their mean; `draws` are sorted."""
    chances = _chances_to_be_last(draws.len(), ranks)
    return float((draws * chances).sum()) - float(draws.mean())  # type: ignore[arg-type]


@cache
def _chances_to_be_last(count: int, ranks: int) -> pl.Series:
    """Of each of the sorted values: that it is the maximum of this many draws."""
    place = pl.int_range(1, count + 1, eager=True).cast(pl.Float64) / count
    chances: pl.Series = place.pow(ranks) - (place - 1 / count).pow(ranks)
    return chances


def _thin(draws: pl.Series) -> pl.Series:
    """Means of neighbours in order, so few that an hour of many ranks is quick.

    Groups are counted from the end: the one that is not full must not stand for the longest waits.
    """
    size = -(-draws.len() // _MOST_DRAWS)
    if size == 1:
        return draws
    odd = draws.len() % size
    means = draws.slice(odd).reshape((-1, size)).arr.mean()
    first = pl.Series(draws.name, [draws.slice(0, odd).mean()], dtype=pl.Float64)
    return pl.concat([first, means]) if odd else means


def _individual_part(own: pl.DataFrame) -> pl.Series:
    """All times, without what a step or a rank has in common.

    Taking off the mean of n ranks shrinks the spread by sqrt((n - 1) / n), which is given back.
    """
    values = own.drop("step")
    ranks = values.width
    mean = values.mean_horizontal()
    centred = [values[name] - values[name].mean() - (mean - mean.mean()) for name in values.columns]
    together: pl.Series = pl.concat([each.alias("own") for each in centred])
    return together * math.sqrt(ranks / (ranks - 1))
