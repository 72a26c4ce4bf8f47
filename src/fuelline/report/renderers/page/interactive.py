"""Pictures that the page's script draws: their data, and a table for who cannot see or run it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from fuelline.report.renderers.page.markup import Markup, embed, tag
from fuelline.schema.readings import Missing
from fuelline.schema.units import number, times

if TYPE_CHECKING:
    from fuelline.report.document import Sliders, Story
    from fuelline.schema.diagnosis.forecasts import Forecast


def draw_story(story: Story, table: Markup, place: str) -> Markup:
    """A run over time."""
    data = {
        "picture": msgspec.to_builtins(story.picture),
        "words": story.words,
        "waiting": sorted(story.waiting),
    }
    label = "The run over time: its steps by what they spent their time on; a table follows"
    return tag(
        "div",
        tag("div", class_="stage", role="group", aria_label=label),
        _as_text(table),
        embed(f"{place}-data", data),
        class_="story",
        data_from=f"{place}-data",
    )


def draw_sliders(sliders: Sliders, table: Markup, place: str) -> Markup:
    """What-if by hand."""
    grid = sliders.grid
    data = {
        "sliders": [asdict(each) for each in sliders.sliders],
        "answers": {
            ",".join(map(str, places)): list_answer(answer)
            for places, answer in grid.answers.items()
        },
        "presets": sliders.presets,
        "now": {"value": grid.samples_per_s, "text": number(grid.samples_per_s)},
        "command": sliders.command,
    }
    return tag(
        "div",
        tag("div", class_="stage"),
        _as_text(table),
        embed(f"{place}-data", data),
        class_="sliders",
        data_from=f"{place}-data",
    )


def _as_text(table: Markup) -> Markup:
    return tag("details", tag("summary", "The same as a table"), table)


def list_answer(answer: Forecast) -> list[Any]:
    """Speedup with its interval and throughput, as numbers and in words; then what limits it."""
    speedup, pace = answer.speedup, answer.samples_per_s
    if isinstance(speedup, Missing) or isinstance(pace, Missing):
        reason = speedup.reason if isinstance(speedup, Missing) else ""
        return [None, "cannot tell", reason]
    ends = [speedup.low, speedup.high]
    return [
        speedup.value,
        times(speedup),
        answer.limit_words,
        *ends,
        pace.value,
        number(pace.value),
    ]
