"""Questions to the pipeline model and its answers. JSON of `fuelline whatif --json`.

A question changes some settings and leaves the others; an answer is a speedup with an interval and
the limit that comes next, or Missing with the reason. New fields go last with a default.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from fuelline.schema.diagnosis.storages import StorageKind  # noqa: TC001 - msgspec resolves it at run time
from fuelline.schema.diagnosis.trials import Recommendation  # noqa: TC001 - msgspec resolves it at run time
from fuelline.schema.parts import StepPart  # noqa: TC001 - msgspec resolves it at run time
from fuelline.schema.readings import Missing, Signal

FORECAST_VERSION = 1

_NOT_ASKED = Missing(reason="not asked")


class WhatIf(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What would be different; None leaves a thing as it was recorded."""

    workers: int | None = None
    prefetch: int | None = None
    """Batches that each worker keeps ready."""
    persistent: bool | None = None
    """Workers live through all epochs."""
    pin: bool | None = None
    batch_size: int | None = None
    storage: str | None = None
    """A name of `STORAGE_KINDS`, or a factor such as `2x`."""
    transform_factor: float | None = None
    """Fetching takes this many times less CPU time."""
    handoff_factor: float | None = None
    """Serialising and taking a batch take this many times less time."""
    chip_factor: float | None = None
    """The device is this many times as fast."""
    cores: float | None = None
    """That the job may use: a quota or affinity lifted."""
    alone: bool = False
    """Nobody else uses the host's cores or the storage."""
    ranks: int | None = None
    """Training processes like this one on the same host, each with its own device."""
    rarer: dict[StepPart, float] = field(default_factory=dict)
    """Part of the loop (checkpoint, validation, loop, garbage collection) to how much rarer."""
    measured: StorageKind | None = None
    """The storage that `storage` names, if it is not one of `STORAGE_KINDS` but was probed."""
    chip: str | None = None
    """A chip of the catalogue in place of the recorded one; in place of `chip_factor`."""

    def is_empty(self) -> bool:
        """Whether nothing would be different."""
        return self == WhatIf()


class Bound(Struct, frozen=True, kw_only=True):
    """One operational law: this resource alone allows no more than that."""

    limit: str
    """device, host, workers, cores, storage, service or pauses."""
    speedup: float
    """Against the recording, if nothing else were in the way."""


class Forecast(Struct, frozen=True, kw_only=True):
    """The answer to one question."""

    question: WhatIf
    words: str
    """The question in plain words: `8 workers, data in memory`."""
    speedup: Signal = _NOT_ASKED
    """Samples per second over those of the recording, with a 90 % interval."""
    samples_per_s: Signal = _NOT_ASKED
    """Of one rank."""
    limit: str | None = None
    """The resource that is the limit then: `storage`, `cores`, ..."""
    limit_words: str = ""
    """The same for people: `storage bandwidth`."""
    bounds: list[Bound] = field(default_factory=list)
    """All limits of the changed job, the tightest first."""
    assumptions: list[str] = field(default_factory=list)
    worth_usd_per_day: float | None = None
    """What an accelerator that runs all day then saves, at the given price."""

    def __repr__(self) -> str:
        speedup = self.speedup
        if isinstance(speedup, Missing):
            return f"<Forecast {self.words}: cannot tell ({speedup.reason})>"
        doubt = ""
        if speedup.low is not None and speedup.high is not None:
            doubt = f" ({speedup.low:.1f}-{speedup.high:.1f})"
        then = f", then {self.limit_words}" if self.limit_words else ""
        return f"<Forecast {self.words}: {speedup.value:.1f}x{doubt}{then}>"


class ForecastReport(Struct, frozen=True, kw_only=True):
    """What `fuelline whatif` prints as JSON."""

    schema_version: int = FORECAST_VERSION
    fuelline_version: str = ""
    run_id: str = ""
    samples_per_s: float | None = None
    """As recorded."""
    limit: str | None = None
    """Of the recording, by the model."""
    limit_words: str = ""
    fit_error: float | None = None
    """The model's own time of a batch over the measured one, minus 1."""
    forecasts: list[Forecast] = field(default_factory=list)
    """The question first; without one, those that would help most."""
    price_usd_per_hour: float | None = None
    recommended: Recommendation | None = None
    """The loader setting for this job, as in its diagnosis; null if the model does not fit."""


GridKnob = Literal["workers", "prefetch", "batch_size", "storage", "cores", "chip_factor"]
"""What can be turned by hand, as of `WhatIf`."""


class ForecastAxis(Struct, frozen=True, kw_only=True):
    """One setting and the values that were asked for."""

    knob: GridKnob
    values: list[float | str]
    now: int
    """Which of them is the recorded one."""


class ForecastGrid(Struct, frozen=True, kw_only=True):
    """Answers to many questions at once: for sliders on a page that has no model behind it.

    The same answers as to the same questions one by one. Not all combinations were asked.
    """

    axes: list[ForecastAxis]
    answers: dict[tuple[int, ...], Forecast]
    """By the place of the value on each axis."""
    samples_per_s: float
    """As recorded."""

    def find(self, turned: dict[GridKnob, int]) -> Forecast | None:
        """With these axes at these places and all others as recorded; None if it was not asked."""
        places = (turned.get(axis.knob, axis.now) for axis in self.axes)
        return self.answers.get(tuple(places))
