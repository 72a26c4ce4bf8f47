"""Words for `plan check`: errors by kind, coverage, the worst rows, and those without an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import Block, Document, Heading, Item, Items, Statement, Table
from fuelline.schema.plan.estimates import PLAN_LEVEL
from fuelline.schema.units import percent, short

if TYPE_CHECKING:
    from fuelline.schema.plan.scores import Checked, Score

_MOST_REASONS = 10


def write_score(score: Score) -> Document:
    """The whole report."""
    blocks: list[Block] = [Statement(_head(score))]
    rows = [group for group in score.groups if group.all_rows]
    if rows:
        blocks.append(Heading("Mean absolute error by kind of row"))
        blocks.append(
            Table(
                ("kind", "clean", "MAPE", "median", "all", "MAPE", "in interval"),
                tuple(
                    (
                        group.group,
                        str(group.clean_rows),
                        _share(group.clean_mape_frac),
                        _share(group.clean_median_frac),
                        str(group.all_rows),
                        _share(group.all_mape_frac),
                        _share(group.coverage_frac),
                    )
                    for group in rows
                ),
            )
        )
    if score.worst:
        blocks.append(Heading("The worst rows, clean or not"))
        blocks.append(Table(_WORST_HEAD, tuple(_worst(each) for each in score.worst)))
        blocks.append(Heading("Why, as far as the rows and the predictions show"))
        blocks.append(Items(tuple(_why(each) for each in score.worst)))
    blocks += _unanswered(score)
    return Document(tuple(blocks))


_WORST_HEAD = ("row", "model", "chip", "metric", "measured", "predicted", "ratio")


def _head(score: Score) -> str:
    covered = ""
    if score.coverage_frac is not None:
        held = percent(score.coverage_frac)
        covered = f" The {PLAN_LEVEL} % intervals hold {held} of the measured values."
    share = f" ({percent(score.answered_frac)})" if score.rows else ""
    return f"{score.answered} of {score.rows} rows answered{share}.{covered}"


def _share(frac: float | None) -> str:
    return "-" if frac is None else f"{100 * frac:.1f} %"


def _worst(each: Checked) -> tuple[str, ...]:
    return (
        each.id[:6],
        each.model[:14],
        each.hardware[:13],
        each.metric[:17],
        short(each.measured),
        short(each.predicted),
        f"{each.predicted / each.measured:.2f}",
    )


def _why(each: Checked) -> Item:
    ratio = each.predicted / each.measured
    inside = "inside" if each.inside else "outside"
    return Item(
        f"{each.id}, {ratio:.2f} of the measured, {inside} its {PLAN_LEVEL} % interval, "
        f"limit {each.limit}:",
        each.why,
    )


def _unanswered(score: Score) -> list[Block]:
    if not score.unanswered:
        return []
    items = [Item(f"{each.id}: {each.reason}") for each in score.unanswered[:_MOST_REASONS]]
    rest = len(score.unanswered) - len(items)
    if rest:
        items.append(Item(f"and {rest} more: --json lists all"))
    return [Heading("Rows without an answer"), Items(tuple(items))]
