"""Forecasts in, Document out: what a change would gain, and what would limit the job then."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from fuelline.report.document import Block, Document, Heading, Item, Items, Statement
from fuelline.schema.readings import Missing
from fuelline.schema.units import number, percent, times

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.forecasts import Forecast, ForecastReport
    from fuelline.schema.diagnosis.trials import Recommendation

_POOR_FIT = 0.15
"""Misfit from which a reader should know of it: more than the interval of a good answer."""
_MOST_BOUNDS = 4


def write_forecasts(report: ForecastReport, run: str) -> Document:
    """The answers, and how the recording itself looks to the model.

    `run` is the word by which commands find it.
    """
    asked = len(report.forecasts) == 1
    blocks: list[Block] = [*_now(report), *describe_recommended(report.recommended)]
    if not report.forecasts:
        blocks.append(Statement("The model knows of no change that would make this job faster."))
    elif asked:
        blocks += _answer(report.forecasts[0])
    else:
        items = tuple(Item(sentence(each), tuple(_details(each))) for each in report.forecasts)
        blocks += [Heading("What would help most"), Items(items, numbered=True)]
    blocks.append(Statement(_next(report, run), is_whole=True))
    return Document(tuple(blocks))


def describe_recommended(
    recommended: Recommendation | None, name: str = "Recommended"
) -> list[Block]:
    """The one setting that every command recommends, and why; nothing if there is none."""
    if recommended is None:
        return []
    if not recommended.settings:
        return [Statement(f"Recommended: leave the loader as it is; {recommended.why}.")]
    gain = recommended.speedup
    kind = "measured" if recommended.is_measured else "predicted"
    words = "" if isinstance(gain, Missing) else f": {times(gain)} {kind}"
    risk = f" Check first: {recommended.risk}." if recommended.risk else ""
    return [Statement(f"{name}: {recommended.text()}{words}; {recommended.why}.{risk}")]


def sentence(answer: Forecast) -> str:
    """`8 workers: 2.06x (90 %: 1.88-2.27), then storage bandwidth`."""
    if isinstance(answer.speedup, Missing):
        return f"{answer.words}: cannot tell"
    return f"{answer.words}: {times(answer.speedup)}, then {answer.limit_words}"


def _now(report: ForecastReport) -> list[Block]:
    if report.samples_per_s is None:
        return []
    text = f"Now {number(report.samples_per_s)} samples/s; the limit is {report.limit_words}."
    if report.fit_error is not None and abs(report.fit_error) > _POOR_FIT:
        text += (
            f" The model's time for a batch is {percent(abs(report.fit_error))} "
            f"{'above' if report.fit_error > 0 else 'below'} the recorded one; the intervals allow "
            "for that."
        )
    return [Statement(text)]


def _answer(answer: Forecast) -> list[Block]:
    if answer.question.is_empty() and isinstance(answer.speedup, Missing):
        return [Statement(f"No prediction: {answer.speedup.reason.rstrip('.')}.", alarm=True)]
    blocks: list[Block] = [
        Statement(sentence(answer), alarm=isinstance(answer.speedup, Missing)),
        Items(tuple(Item(detail) for detail in _details(answer))),
    ]
    if answer.bounds:
        bounds = (
            Item(f"{bound.limit}: at most {bound.speedup:.2f}x")
            for bound in answer.bounds[:_MOST_BOUNDS]
        )
        blocks += [Heading("What each resource alone would allow"), Items(tuple(bounds))]
    return blocks


def _details(answer: Forecast) -> list[str]:
    if isinstance(answer.speedup, Missing):
        return [f"{answer.speedup.reason.rstrip('.')}."]
    details = []
    if not isinstance(answer.samples_per_s, Missing):
        details.append(f"{number(answer.samples_per_s.value)} samples/s")
    if answer.worth_usd_per_day is not None:
        details.append(f"worth {answer.worth_usd_per_day:.2f} USD per day and accelerator")
    details += [f"assumes: {words}" for words in answer.assumptions]
    return details


def _next(report: ForecastReport, run: str) -> str:
    blind = all(isinstance(answer.speedup, Missing) for answer in report.forecasts)
    if report.forecasts and blind:
        return f"Next: fuelline diagnose {shlex.quote(run)}"
    if report.recommended is not None and report.recommended.settings:
        return "Next: fuelline tune SCRIPT"  # measures what is predicted here
    return f"Next: fuelline export {shlex.quote(run)} --perfetto timeline.json"
