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
    Number,
    SideBySide,
    Statement,
    Summary,
    Table,
)
from fuelline.schema.diagnosis.comparison import MOST_RECORDINGS, NOTABLE_FRAC
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
_SURE = "beyond noise"
"""The column that says whether a change is more than that."""
_WORDS = {"slower": "more", "faster": "less", "same": "", "cannot tell": "?"}


def write_comparison(comparison: RunComparison) -> Document:
    """The whole page."""
    return Document(
        (
            _summarise(comparison),
            *_table(_where(comparison), comparison.parts, comparison),
            *_rare(comparison),
            *_table("Kernels by class, all streams added up", comparison.kernels, comparison),
            Statement(_meaning(comparison)),
            *_verdicts(comparison),
            *_notes(comparison),
        )
    )


def _summarise(comparison: RunComparison) -> Summary:
    step = comparison.step
    share = (
        ""
        if step.share is None
        else f" ({'+' if step.share >= 0 else '-'}{percent(abs(step.share))})"
    )
    slower = comparison.judgement == "slower"
    return Summary(
        title=_sides(comparison),
        sentence=_sentence(comparison),
        label=_limit(comparison),
        alarm=comparison.is_over or (comparison.threshold is None and slower),
        unsure=not comparison.is_over
        and (comparison.judgement == "cannot tell" or _may_hide_a_change(comparison)),
        figures=()
        if comparison.unit == "share"
        else (
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
    if unit == "share":
        return _by_shares(comparison)
    lengths = f"{_lengths(step)} per {unit}{_totals(comparison)}"
    if comparison.judged_by == "cpu" and comparison.cpu is not None:
        return _by_cpu(comparison, comparison.cpu, lengths)
    if comparison.judged_by == "parts" and comparison.relative is not None:
        return _by_parts(comparison, comparison.relative, lengths)
    if step.judgement == "same":
        return f"No change beyond the noise: {lengths}. {_unseen(comparison)}"
    if not step.change or step.judgement == "cannot tell":
        return _undecided(comparison, lengths)
    most = next((part for part in comparison.parts if part.change * step.change > 0), None)
    cause = (
        f" Most of that is {PART_WORDS.get(most.name, most.name)}: {_signed(most.change)} per "
        f"{unit}."
        if most
        else ""
    )
    said = _longer(comparison)
    return f"{said[0].upper()}{said[1:]}: {lengths}{_doubt(step)}.{cause}"


def _longer(comparison: RunComparison) -> str:
    step = comparison.step
    what = "steps are" if comparison.unit == "step" else "the run is"
    share = percent(abs(step.share)) if step.share is not None else "much"
    return f"{what} {share} {'longer' if step.change > 0 else 'shorter'}"


def _undecided(comparison: RunComparison, lengths: str) -> str:
    step = comparison.step
    if not step.change:
        return f"No change: {lengths}{_doubt(step)}."
    if step.low is not None:
        return (
            f"Cannot tell: {_longer(comparison)}, {lengths}, but other processes or another speed "
            f"of the machine may have made all of that. {_unseen(comparison)}"
        )
    return (
        f"Cannot tell which is faster: {lengths}, and one {comparison.unit} is not enough to "
        "separate a change from noise."
    )


_MOST_NAMED = 3


def _by_shares(comparison: RunComparison) -> str:
    """Of traces whose steps are not the same thing; which is faster they do not say."""
    named = ", ".join(
        f"{PART_WORDS.get(part.name, part.name)} {_lengths(part, comparison)}"
        for part in comparison.parts[:_MOST_NAMED]
        if abs(part.change) >= _NOTICEABLE_SHARE
    )
    mixed = f"of the devices' time, {named}" if named else "the devices' time is spent as before"
    return f"Cannot tell which is faster: steps are not comparable. What can be compared: {mixed}."


_NOTICEABLE_SHARE = 0.01


def _where(comparison: RunComparison) -> str:
    unit = comparison.unit
    return "Where the devices' time went" if unit == "share" else f"Where a {unit} went"


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
        f"Steps take {duration(abs(relative.change))} {word} for one of their parts{share}: "
        f"{PART_WORDS.get(relative.part, relative.part)}{_doubt(relative)}. It changed against the "
        f"others, which took {relative.factor:.2f} times as long, as a machine of another speed "
        f"makes them. The length of steps, {lengths}, cannot tell{_neighbours(comparison)}."
    )


def _lengths(change: Change, comparison: RunComparison | None = None) -> str:
    if comparison is not None and comparison.unit == "share":
        return f"{_share(change.before)} -> {_share(change.after)}"
    return f"{duration(change.before)} -> {duration(change.after)}"


def _share(value: float, sign: str = "") -> str:
    return f"{100 * value:{sign}.1f} %"


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


_RECORDED_LEVEL = 99
"""Of intervals between recorded runs; those between traces, which have few steps, are at 95 %."""


def _may_hide_a_change(comparison: RunComparison) -> bool:
    """Whether "no change" is said only because the noise is as large as a change worth seeing."""
    is_same = comparison.judgement == "same" and comparison.judged_by == "step"
    return is_same and _is_wide(comparison.step)


def _is_wide(step: Change) -> bool:
    return max(abs(step.low or 0.0), abs(step.high or 0.0)) >= NOTABLE_FRAC * step.before


def _more(comparison: RunComparison) -> str:
    """What would tell, where these recordings could not."""
    step, needed = comparison.step, comparison.recordings_needed
    sides = (comparison.before, comparison.after)
    enough = needed or MOST_RECORDINGS
    if not _is_wide(step) or min(side.recordings for side in sides) >= enough:
        return ""
    if step.level != _RECORDED_LEVEL:
        return " To see a smaller change, profile more steps of each."
    count = f"more than {MOST_RECORDINGS}" if needed is None else f"about {needed}"
    return (
        f" To see a change of {percent(NOTABLE_FRAC)} in all of a step takes {count} recordings of "
        "each side on this machine, made in turns and added with --before and --after, or a "
        "quieter machine."
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
    if comparison.judgement == "cannot tell":
        return f"the limit of {percent(comparison.threshold)} cannot be checked"
    word = "over" if comparison.is_over else "within"
    return f"{word} the limit of {percent(comparison.threshold)}"


def _table(title: str, changes: list[Change], comparison: RunComparison) -> list[Block]:
    whole = max(comparison.step.before, comparison.step.after)
    place = "parts" if changes is comparison.parts else "kernels"
    paths = {id(change): f"{place}/{number}" for number, change in enumerate(changes)}
    shown = [
        change for change in changes if max(change.before, change.after) >= _LEAST_SHARE * whole
    ][:_MOST_ROWS]
    if not shown:
        return []
    values = tuple((change.before, change.after) for change in shown)
    if comparison.unit == "share":
        header: tuple[str, ...] = ("part", "before", "after", "change")
        rows = tuple(_share_row(each, paths[id(each)]) for each in shown)
    else:
        header = ("part", "before", "after", "change", f"{comparison.unit} longer by", _SURE)
        rows = tuple(_row(each, paths[id(each)]) for each in shown)
    return [Heading(title), SideBySide(Table(header, rows), values)]


def _row(change: Change, path: str) -> tuple[str, ...]:
    share = change.share
    return (
        PART_WORDS.get(change.name, change.name),
        Number(_seconds(change.before), change.before, f"{path}/before"),
        Number(_seconds(change.after), change.after, f"{path}/after"),
        Number(_signed(change.change), change.change, f"{path}/change"),
        "" if share is None else Number(_share(share, "+"), share, f"{path}/share"),
        _WORDS[change.judgement],
    )


def _share_row(change: Change, path: str) -> tuple[str, ...]:
    return (
        PART_WORDS.get(change.name, change.name),
        Number(_share(change.before), change.before, f"{path}/before"),
        Number(_share(change.after), change.after, f"{path}/after"),
        Number(_share(change.change, "+"), change.change, f"{path}/change"),
    )


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
    header = ("part", "before", "after", f"change per {comparison.unit}", _SURE)
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
    if comparison.unit == "share":
        return (
            "To learn which is faster, profile the same number of marked steps of both "
            "(torch.profiler's schedule and step(), or an NVTX range for each step)."
        )
    if comparison.step.low is None:
        return (
            "A question mark: there are too few steps to separate noise from change. Profile "
            "or record several steps of each."
        )
    if comparison.before.recordings + comparison.after.recordings > 2:
        return (
            "Beyond noise: more or less is beyond what recordings of the same side differ by "
            "(99 %); empty is not."
        )
    return (
        "Beyond noise: more or less is beyond what the same job differs by from run to run, "
        "and beyond what other processes or another speed of the machine may have added "
        f"({comparison.step.level} %); a question mark is beyond the first, not beyond the second; "
        "empty is beyond neither."
    )


def _seconds(value: float) -> str:
    return duration(value) if value >= 0 else f"-{duration(-value)}"


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{duration(abs(value))}"
