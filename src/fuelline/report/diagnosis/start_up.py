"""The start-up ledger, in words: bars where it matters, a line where it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.diagnosis.words import as_code
from fuelline.report.document import Bar, Bars, Block, Code, Heading, Item, Items, Statement
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.findings import Diagnosis
    from fuelline.schema.diagnosis.start_up import StartLedger, StartPart, StartUpPart

_LONG_SECONDS = 30.0
_LONG_SHARE = 0.1
"""Of the run; from here on, or from that many seconds, start-up has a chapter of its own."""
_SHOWN = 0.01
_MOST_IN_LINE = 3
_FULLY_NAMED = 0.995
_WORDS: dict[StartPart, str] = {
    "launch": "start of the processes",
    "interpreter": "Python itself",
    "code": "the job's own code",
    "to device": "model to device",
    "warm-up": "warm-up steps",
    "tracking": "experiment tracking",
    "unnamed": "not seen",
}


def describe_start_up(diagnosis: Diagnosis) -> list[Block]:
    """From the start of the job to its first usual step; nothing where that was not seen."""
    start_up = diagnosis.start_up
    if start_up is None or not start_up.parts:
        return []
    whole = diagnosis.run.seconds
    is_long = start_up.seconds >= _LONG_SECONDS
    if not is_long and whole and start_up.seconds < _LONG_SHARE * whole:
        return [Statement(f"Start-up took {duration(start_up.seconds)}: {_list_parts(start_up)}.")]
    title = f"Start-up: {duration(start_up.seconds)} until steps are as long as usual"
    if start_up.named_frac < _FULLY_NAMED:
        title += f", {percent(start_up.named_frac)} of it named"
    bars = tuple(
        _bar(part, start_up, f"start_up/parts/{place}/share")
        for place, part in enumerate(start_up.parts)
        if part.seconds >= _SHOWN * start_up.seconds
    )
    blocks: list[Block] = [Heading(title, "Start-up"), Bars(bars)]
    items = tuple(
        Item(as_code(each.setting), (f"{_word(part)}: {each.why}", *_lines(part)))
        for part in sorted(start_up.parts, key=lambda part: -part.seconds)
        for each in part.shorten
    )
    return [*blocks, Items(items)] if items else blocks


def _bar(part: StartUpPart, start_up: StartLedger, path: str) -> Bar:
    named = next((each for each in part.details if each.name), None)
    detail = duration(part.seconds)
    if named is not None:
        detail += f", {named.name}"
        if part.seconds - named.seconds >= _SHOWN * start_up.seconds:
            detail += f" {duration(named.seconds)}"
    return Bar(
        label=_word(part),
        share=part.share,
        detail=detail,
        marked=part.part == "unnamed",
        path=path,
        code=part.part,
    )


def _lines(part: StartUpPart) -> list[str]:
    first = next((each for each in part.details if each.line is not None), None)
    if first is None:
        return []
    return [Code(f"{first.line}" + (f":  {first.source}" if first.source else ""))]


def _list_parts(start_up: StartLedger) -> str:
    longest = sorted(start_up.parts, key=lambda part: -part.seconds)[:_MOST_IN_LINE]
    return ", ".join(f"{_word(part)} {duration(part.seconds)}" for part in longest)


def _word(part: StartUpPart) -> str:
    return _WORDS.get(part.part, part.part)
