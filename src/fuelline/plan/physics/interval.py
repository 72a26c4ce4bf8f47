"""From terms to an interval: doubts of the terms, of the kind of question, of assumptions.

The doubt of a sum is the root of the squared doubts of its terms. To it comes the spread that
leaving whole sources out showed for questions of this kind (`fitted.toml`). The interval is
symmetric in ratios.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.schema.plan.estimates import PLAN_LEVEL, Estimate, Term, TermLimit
from fuelline.schema.student import DEVIATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.plan.physics.constants import Constants

STATIC, RATE, TPOT, TTFT = "static", "throughput under load", "TPOT under load", "TTFT under load"
ENERGY, DENSE, SPARSE = "energy", "training, dense", "training, MoE"
GROUPS = (STATIC, RATE, TPOT, TTFT, ENERGY, DENSE, SPARSE)
"""Kinds of questions that have their own doubt, and are scored apart."""
ASSUMED_FRAC = 0.10
"""Doubt that every assumption adds."""
UNSEEN_GROUP_FRAC = 0.20


def main_limit(terms: Sequence[Term]) -> TermLimit:
    """What most of the time waits for."""
    by_limit: dict[TermLimit, float] = {}
    for term in terms:
        by_limit[term.limit] = by_limit.get(term.limit, 0.0) + term.seconds
    return max(by_limit, key=lambda limit: by_limit[limit], default="unknown")


def terms_doubt(terms: Sequence[Term]) -> float:
    """As a share of their sum."""
    total = sum(term.seconds for term in terms)
    if total <= 0:
        return 0.0
    return math.sqrt(sum((term.seconds / total * term.doubt_frac) ** 2 for term in terms))


def group_doubt(groups: Sequence[str], constants: Constants) -> float:
    """Of questions that belong to all these groups."""
    known = {each.group: each.frac for each in constants.doubt}
    fracs = [known.get(group, UNSEEN_GROUP_FRAC if group == groups[0] else 0.0) for group in groups]
    return math.sqrt(sum(frac**2 for frac in fracs))


def interval_ratio(doubt_frac: float) -> float:
    """How many times as much as the value the upper end of its interval is."""
    return math.exp(DEVIATIONS[PLAN_LEVEL] * doubt_frac)


def estimate(
    value: tuple[float, str],
    terms: Sequence[Term],
    groups: Sequence[str],
    constants: Constants,
    assumptions: Sequence[str] = (),
    *,
    work: float | None = None,
) -> Estimate:
    """A number with its unit gets its interval and its limit; `work` as in `Estimate`."""
    middle, unit = value
    doubt = math.sqrt(
        terms_doubt(terms) ** 2
        + group_doubt(groups, constants) ** 2
        + len(assumptions) * ASSUMED_FRAC**2
    )
    ratio = interval_ratio(doubt)
    return Estimate(
        value=middle,
        low=middle / ratio,
        high=middle * ratio,
        level=PLAN_LEVEL,
        unit=unit,
        limit=main_limit(terms),
        terms=tuple(terms),
        assumptions=tuple(assumptions),
        work=work,
    )


def as_sure_as(other: Estimate, value: float | None, unit: str) -> Estimate | None:
    """A number that follows from an estimate and known figures alone: as wide, the same limit."""
    if value is None:
        return None
    ratio = other.high / other.value
    return Estimate(
        value=value,
        low=value / ratio,
        high=value * ratio,
        level=other.level,
        unit=unit,
        limit=other.limit,
    )
