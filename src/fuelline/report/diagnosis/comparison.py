"""What changed between two runs, for people: one sentence, then parts and kernel classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.diagnosis.words import PART_WORDS
from fuelline.report.document import (
    Block,
    Document,
    Figure,
    Heading,
    Item,
    Items,
    SideBySide,
    Statement,
    Summary,
    Table,
)
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.comparison import (
        Change,
        ComparedRun,
        RelativeChange,
        RunComparison,
    )

_MOST_ROWS = 12
_LEAST_SHARE = 0.001
"""Of a step: smaller parts that hardly changed are not listed."""
_WORDS = {"slower": "more", "faster": "less", "same": "", "cannot tell": "?"}


def write_comparison(comparison: RunComparison) -> Document:
    """The whole page."""
    return Document(
        (
            _summarise(comparison),
            *_table(f"Where a {comparison.unit} went", comparison.parts, comparison),
            *_rare(comparison),
            *_table("Kernels by class, all streams added up", comparison.kernels, comparison),
            *_verdicts(comparison),
            *_notes(comparison),
            Statement(_meaning(comparison)),
        )
    )


def _summarise(comparison: RunComparison) -> Summary:
    step = comparison.step
    share = (
        ""
        if step.share is None
        else f" ({'+' if step.share >= 0 else '-'}{percent(abs(step.share))})"
    )
    return Summary(
        title=_sides(comparison),
        sentence=_sentence(comparison),
        label=_limit(comparison),
        alarm=comparison.is_over,
        figures=(
            Figure(
                f"per {comparison.unit} before", duration(step.before), "step/before", step.before
            ),
            Figure(f"per {comparison.unit} after", duration(step.after), "step/after", step.after),
            Figure(
                f"change per {comparison.unit}",
                f"{_signed(step.change)}{share}",
                "step/change",
                step.change,
            ),
        ),
    )


def _sides(comparison: RunComparison) -> str:
    return f"{_side(comparison.before)} -> {_side(comparison.after)}"


def _side(side: ComparedRun) -> str:
    recordings = [f"{side.recordings} recordings"] if side.recordings > 1 else []
    counts = [*recordings, *([f"{side.steps} steps"] if side.steps else [])]
    return f"{side.label} ({', '.join(counts)})" if counts else side.label


def _sentence(comparison: RunComparison) -> str:
    step, unit = comparison.step, comparison.unit
    lengths = f"{_lengths(step)} per {unit}{_totals(comparison)}"
    if comparison.judged_by == "cpu" and comparison.cpu is not None:
        return _by_cpu(comparison, comparison.cpu, lengths)
    if comparison.judged_by == "parts" and comparison.relative is not None:
        return _by_parts(comparison, comparison.relative, lengths)
    if step.judgement == "same":
        return f"No change beyond the noise: {lengths}. {_unseen(comparison)}"
    if not step.change:
        return f"No change: {lengths}{_doubt(step)}."
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
    return f"{what} {share} {word}: {lengths}{_doubt(step)}.{cause}"


def _by_cpu(comparison: RunComparison, cpu: Change, lengths: str) -> str:
    word = "more" if cpu.change > 0 else "less"
    share = "" if cpu.share is None else f", {percent(abs(cpu.share))} of a step"
    return (
        f"Steps take {duration(abs(cpu.change))} {word} CPU time{share}: {_lengths(cpu)} when "
        f"disturbed least{_doubt(cpu)}. Their length, {lengths}, cannot tell"
        f"{_neighbours(comparison)}."
    )


def _by_parts(comparison: RunComparison, relative: RelativeChange, lengths: str) -> str:
    word = "more" if relative.change > 0 else "less"
    share = "" if relative.share is None else f", {percent(abs(relative.share))} of a step"
    return (
        f"Steps take {duration(abs(relative.change))} {word} for their own parts{share}, most of "
        f"it in {PART_WORDS.get(relative.part, relative.part)}{_doubt(relative)}: this part "
        f"changed against the others, which took {relative.factor:.2f} times as long, as a busy "
        f"machine makes them. The length of steps, {lengths}, cannot tell{_neighbours(comparison)}."
    )


def _lengths(change: Change) -> str:
    return f"{duration(change.before)} -> {duration(change.after)}"


def _totals(comparison: RunComparison) -> str:
    """For equal work: as many steps."""
    before, after = comparison.before, comparison.after
    if not before.steps or before.steps != after.steps:
        return ""
    return f" ({duration(before.total)} -> {duration(after.total)} for {before.steps} steps)"


def _unseen(comparison: RunComparison) -> str:
    """What a change may still be, and why no less."""
    step = comparison.step
    if step.low is None or step.high is None:
        return ""
    span = f"{_signed(step.low)} to {_signed(step.high)}"
    return f"The job itself may have changed by {span}{_neighbours(comparison)}.{_more(comparison)}"


_WIDE = 0.05
"""Of a step: a change of this size would be worth knowing."""


def _more(comparison: RunComparison) -> str:
    """What would tell, where a single pair could not."""
    step, recordings = comparison.step, comparison.before.recordings + comparison.after.recordings
    reach = max(abs(step.low or 0.0), abs(step.high or 0.0))
    if recordings > 2 or reach < _WIDE * step.before:
        return ""
    return (
        " To see a smaller change, use a quieter machine, or record each side five times, in "
        "turns, and add them with --before and --after."
    )


_NOTICEABLE_WAIT = 0.02
"""Of a step: less than one run differs from the next by."""


def _neighbours(comparison: RunComparison) -> str:
    """How long other processes kept the job from running, if they did."""
    sides = (comparison.before, comparison.after)
    if not any((side.queued or 0.0) > _NOTICEABLE_WAIT * side.seconds for side in sides):
        return ""
    queued = ", ".join(
        f"{duration(side.queued or 0.0)} {when}"
        for side, when in zip(sides, ("before", "after"), strict=True)
    )
    return f": per {comparison.unit} its threads waited for cores that others had ({queued})"


def _doubt(change: Change) -> str:
    """The interval of the change; `+- 5 ms` if it is as wide to both sides."""
    if change.low is None or change.high is None:
        return ", noise unknown"
    down, up = change.change - change.low, change.high - change.change
    if abs(down - up) <= 0.1 * max(down, up):
        return f" (+- {duration(max(down, up))})"
    return f" ({change.level} %: {_signed(change.low)} to {_signed(change.high)})"


def _limit(comparison: RunComparison) -> str:
    if comparison.threshold is None:
        return ""
    word = "over" if comparison.is_over else "within"
    return f"{word} the limit of {percent(comparison.threshold)}"


def _table(title: str, changes: list[Change], comparison: RunComparison) -> list[Block]:
    whole = max(comparison.step.before, comparison.step.after)
    shown = [
        change for change in changes if max(change.before, change.after) >= _LEAST_SHARE * whole
    ][:_MOST_ROWS]
    rows = tuple(
        (
            PART_WORDS.get(change.name, change.name),
            _seconds(change.before),
            _seconds(change.after),
            _signed(change.change),
            "" if change.share is None else f"{100 * change.share:+.1f} %",
            _WORDS[change.judgement],
        )
        for change in shown
    )
    values = tuple((change.before, change.after) for change in shown)
    header = ("part", "before", "after", "change", f"of a {comparison.unit}", "")
    return [Heading(title), SideBySide(Table(header, rows), values)] if rows else []


def _rare(comparison: RunComparison) -> list[Block]:
    rows = tuple(
        (
            PART_WORDS.get(each.name, each.name),
            _times(each.count_before, each.before),
            _times(each.count_after, each.after),
            _signed(each.change),
            _WORDS[each.judgement],
        )
        for each in comparison.rare
    )
    header = ("part", "before", "after", f"change per {comparison.unit}", "")
    return [Heading("Once in many steps"), Table(header, rows)] if rows else []


def _times(count: int, seconds: float | None) -> str:
    return "none" if seconds is None else f"{count} x {duration(seconds)}"


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
    if comparison.before.recordings + comparison.after.recordings > 2:
        return "more, less: beyond what recordings of the same side differ by (99 %)."
    return (
        "more, less: beyond what the same job differs by from run to run, and beyond what other "
        "processes may have added (95 %)."
    )


def _seconds(value: float) -> str:
    return duration(value) if value >= 0 else f"-{duration(-value)}"


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{duration(abs(value))}"
