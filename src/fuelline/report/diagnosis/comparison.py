"""What changed between two runs, for people: one sentence, then parts and kernel classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.diagnosis.writer import PART_WORDS
from fuelline.report.document import Block, Document, Heading, Item, Items, Statement, Table
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.comparison import Change, RunComparison

_MOST_ROWS = 12
_LEAST_SHARE = 0.001
"""Of a step: smaller parts that hardly changed are not listed."""
_WORDS = {"slower": "more", "faster": "less", "same": "", "cannot tell": "?"}


def write_comparison(comparison: RunComparison) -> Document:
    """The whole page."""
    return Document(
        (
            Statement(_sides(comparison)),
            Statement(_sentence(comparison), _limit(comparison), alarm=comparison.is_over),
            *_table(f"Where a {comparison.unit} went", comparison.parts, comparison),
            *_table("Kernels by class, all streams added up", comparison.kernels, comparison),
            *_verdicts(comparison),
            *_notes(comparison),
            Statement(_meaning(comparison)),
        )
    )


def _sides(comparison: RunComparison) -> str:
    def side(label: str, steps: int) -> str:
        return f"{label} ({steps} steps)" if steps else label

    before, after = comparison.before, comparison.after
    return f"{side(before.label, before.steps)} -> {side(after.label, after.steps)}"


def _sentence(comparison: RunComparison) -> str:
    step = comparison.step
    lengths = f"{duration(step.before)} -> {duration(step.after)}"
    unit = comparison.unit
    if step.judgement == "same":
        return f"No change beyond the noise: {lengths} per {unit}{_doubt(step)}."
    if not step.change:
        return f"No change: {lengths} per {unit}{_doubt(step)}."
    word = "longer" if step.change > 0 else "shorter"
    what = "Steps are" if unit == "step" else "The run is"
    share = percent(abs(step.share)) if step.share is not None else "much"
    most = next((part for part in comparison.parts if part.change * step.change > 0), None)
    cause = (
        f" Most of that is {PART_WORDS.get(most.name, most.name)}: {_signed(most.change)} per "
        f"{unit}."
        if most
        else ""
    )
    return f"{what} {share} {word}: {lengths} per {unit}{_doubt(step)}.{cause}"


def _doubt(step: Change) -> str:
    if step.low is None or step.high is None:
        return ", noise unknown"
    return f" (+- {duration((step.high - step.low) / 2)})"


def _limit(comparison: RunComparison) -> str:
    if comparison.threshold is None:
        return ""
    word = "over" if comparison.is_over else "within"
    return f"{word} the limit of {percent(comparison.threshold)}"


def _table(title: str, changes: list[Change], comparison: RunComparison) -> list[Block]:
    whole = max(comparison.step.before, comparison.step.after)
    rows = tuple(
        (
            PART_WORDS.get(change.name, change.name),
            _seconds(change.before),
            _seconds(change.after),
            _signed(change.change),
            "" if change.share is None else f"{100 * change.share:+.1f} %",
            _WORDS[change.judgement],
        )
        for change in changes
        if max(change.before, change.after) >= _LEAST_SHARE * whole
    )[:_MOST_ROWS]
    header = ("part", "before", "after", "change", f"of a {comparison.unit}", "")
    return [Heading(title), Table(header, rows)] if rows else []


def _verdicts(comparison: RunComparison) -> list[Block]:
    before, after = comparison.before, comparison.after
    items = (Item(f"before: {before.sentence}"), Item(f"after: {after.sentence}"))
    return [Heading("Verdicts"), Items(items)] if before.sentence or after.sentence else []


def _notes(comparison: RunComparison) -> list[Block]:
    items = tuple(Item(note) for note in comparison.notes)
    return [Heading("Also different"), Items(items)] if items else []


def _meaning(comparison: RunComparison) -> str:
    if comparison.step.low is None:
        return (
            "`?`: there are too few steps to separate noise from change. Profile or record "
            "several steps of each."
        )
    return (
        "more, less: beyond the spread between steps (95 %). On a shared machine the same job also "
        "differs by a few percent from run to run; that is not included."
    )


def _seconds(value: float) -> str:
    return duration(value) if value >= 0 else f"-{duration(-value)}"


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{duration(abs(value))}"
