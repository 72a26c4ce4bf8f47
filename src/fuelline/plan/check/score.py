"""Errors by kind of row, coverage of the intervals, worst rows, rows without an answer."""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fuelline.plan.check.answer import answer_row, group_of
from fuelline.plan.check.case import NOTHING
from fuelline.plan.check.rows import BadRow, Row
from fuelline.plan.check.why import CLEAN, explain_error
from fuelline.plan.physics.interval import GROUPS
from fuelline.schema.plan.estimates import Unanswered
from fuelline.schema.plan.scores import Checked, NoAnswer, Score, ScoreGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.plan.check.case import OwnCatalogue
    from fuelline.plan.physics.constants import Constants
    from fuelline.schema.plan.estimates import Estimate

_WORST = 10


def score_rows(
    rows: Sequence[Row | BadRow], constants: Constants, own: OwnCatalogue = NOTHING
) -> Score:
    """Answer all and compare; the worst get their reasons."""
    checked: list[Checked] = []
    unanswered: list[NoAnswer] = []
    answers: dict[int, tuple[Row, Estimate]] = {}
    for row in rows:
        if isinstance(row, BadRow):
            unanswered.append(NoAnswer(id=row.id, reason=row.reason))
            continue
        answer = answer_row(row, constants, own)
        if isinstance(answer, Unanswered):
            unanswered.append(NoAnswer(id=row.id, reason=answer.reason))
        else:
            answers[len(checked)] = (row, answer)
            checked.append(compare(row, answer))
    order = sorted(range(len(checked)), key=lambda each: -_badness(checked[each]))
    for place in order[:_WORST]:
        why = explain_error(*answers[place], constants, own)
        checked[place] = replace(checked[place], why=why)
    return Score(
        schema_version=1,
        rows=len(rows),
        answered=len(checked),
        answered_frac=len(checked) / len(rows) if rows else 0.0,
        coverage_frac=_mean([float(each.inside) for each in checked]),
        groups=tuple(_group(name, checked) for name in GROUPS),
        worst=tuple(checked[place] for place in order[:_WORST]),
        unanswered=tuple(unanswered),
        checked=tuple(checked),
    )


def compare(row: Row, answer: Estimate) -> Checked:
    """Put the two numbers side by side."""
    return Checked(
        id=row.id,
        group=group_of(row),
        model=row.model,
        hardware=row.hardware,
        metric=row.metric,
        unit=row.unit,
        measured=row.value,
        predicted=answer.value,
        low=answer.low,
        high=answer.high,
        error_frac=answer.value / row.value - 1,
        limit=answer.limit,
        regime=row.regime,
        assumptions=answer.assumptions,
    )


def _badness(each: Checked) -> float:
    """Twice and half are equally wrong."""
    return max(each.predicted / each.measured, each.measured / each.predicted)


def _group(name: str, checked: Sequence[Checked]) -> ScoreGroup:
    members = [each for each in checked if each.group == name]
    clean = [abs(each.error_frac) for each in members if each.regime == CLEAN]
    every = [abs(each.error_frac) for each in members]
    return ScoreGroup(
        group=name,
        clean_rows=len(clean),
        clean_mape_frac=_mean(clean),
        clean_median_frac=median(clean) if clean else None,
        all_rows=len(every),
        all_mape_frac=_mean(every),
        all_median_frac=median(every) if every else None,
        coverage_frac=_mean([float(each.inside) for each in members]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
