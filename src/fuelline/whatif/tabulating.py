"""Answers to many questions at once, for sliders on a page that has no model behind it.

Two families of questions are asked in full: what the machine and the number of workers do together,
and what the loader's settings do together. An answer takes some milliseconds, so that all
combinations of all six would take minutes.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, cast

from fuelline.schema.diagnosis.forecasts import ForecastAxis, ForecastGrid, WhatIf
from fuelline.schema.readings import Missing
from fuelline.whatif.forecasting import forecast
from fuelline.whatif.recommending import find_most_workers, recommend

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.forecasts import GridKnob
    from fuelline.whatif.fitting import Fit

_MACHINE: tuple[GridKnob, ...] = ("workers", "storage", "cores", "chip_factor")
_LOADER: tuple[GridKnob, ...] = ("workers", "prefetch", "batch_size")
_AS_RECORDED = "as recorded"
_MOST_VALUES = 7
"""Of workers."""


def tabulate(fit: Fit | Missing, price_usd_per_hour: float | None = None) -> ForecastGrid | Missing:
    """The answers, or why the model has none."""
    if isinstance(fit, Missing):
        return fit
    axes = _list_axes(fit)
    asked: set[tuple[int, ...]] = set()
    for family in (_MACHINE, _LOADER):
        turned = [range(len(axis.values)) if axis.knob in family else (axis.now,) for axis in axes]
        asked.update(itertools.product(*turned))
    return ForecastGrid(
        axes=axes,
        answers={
            places: forecast(fit, _ask(axes, places), price_usd_per_hour)
            for places in sorted(asked)
        },
        samples_per_s=fit.pipe.batch_samples / fit.batch_s,
    )


def _list_axes(fit: Fit) -> list[ForecastAxis]:
    """Each with the recorded value among the others."""
    pipe = fit.pipe
    batch = round(pipe.batch_samples)
    found: list[tuple[GridKnob, list[float | str], float | str]] = [
        ("workers", cast("list[float | str]", _list_workers(fit)), pipe.workers),
        ("storage", [_AS_RECORDED, "nvme", "warm"], _AS_RECORDED),
        ("cores", [pipe.cores, 2 * pipe.cores, 4 * pipe.cores], pipe.cores),
        ("chip_factor", [1.0, 2.0, 4.0], 1.0),
    ]
    if pipe.workers:
        depths = sorted({1, pipe.prefetch, 2 * pipe.prefetch, 4 * pipe.prefetch})
        found.append(("prefetch", list(depths), pipe.prefetch))
    if batch == pipe.batch_samples:
        sizes = sorted({max(1, batch // 2), batch, 2 * batch, 4 * batch})
        found.append(("batch_size", list(sizes), batch))
    return [
        ForecastAxis(knob=knob, values=values, now=values.index(now)) for knob, values, now in found
    ]


def _list_workers(fit: Fit) -> list[int]:
    """Few and many, the recorded and the recommended number among them."""
    now = fit.pipe.workers
    recommended = recommend(fit)
    wanted = {now} if isinstance(recommended, Missing) else {now, recommended.workers}
    most = max(find_most_workers(fit), *wanted)
    doubled = [0, *(2**power for power in range(math.ceil(math.log2(max(2, most))) + 1))]
    others = [count for count in doubled if count <= max(most, 2 * now) and count not in wanted]
    nearest = sorted(others, key=lambda count: abs(math.log2((count + 0.5) / (max(wanted) + 0.5))))
    return sorted(wanted | set(nearest[: _MOST_VALUES - len(wanted)]))


def _ask(axes: list[ForecastAxis], places: tuple[int, ...]) -> WhatIf:
    """The question; what is as recorded is not asked for."""
    value = {
        axis.knob: axis.values[place]
        for axis, place in zip(axes, places, strict=True)
        if place != axis.now
    }
    return WhatIf(
        workers=cast("int | None", value.get("workers")),
        prefetch=cast("int | None", value.get("prefetch")),
        batch_size=cast("int | None", value.get("batch_size")),
        storage=cast("str | None", value.get("storage")),
        cores=cast("float | None", value.get("cores")),
        chip_factor=cast("float | None", value.get("chip_factor")),
    )
