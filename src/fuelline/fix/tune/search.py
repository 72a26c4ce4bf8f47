"""Finds the settings that feed the device with the least: predicted first, then tried in turns.

The measuring function is an argument, so that this file starts no process and its tests need none.
A trial counts as better only if its interval says so; among those that do as well as the best, the
fewest workers win, then the shortest queue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from fuelline.schema.diagnosis.trials import AS_GOOD, Recommendation, Setting, Trial, risk_of
from fuelline.schema.readings import Missing, Reading
from fuelline.schema.student import compare_means
from fuelline.schema.units import times

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fuelline.schema.diagnosis.trials import TrialVerdict
    from fuelline.schema.readings import Signal

POSSIBLE = 1.3
"""A gain this many times above what the laws allow is no gain but a mistake: three times what jobs
differ by from run to run (7 %) and by how many cores are busy (8 %), together."""


@dataclass(frozen=True)
class Seed:
    """Settings that are worth a trial, by the model."""

    settings: tuple[Setting, ...]
    predicted: Signal
    most: float = math.inf
    """What cores and workers allow at best, by the operational laws."""


@dataclass(frozen=True)
class MeasuredSetting:
    """What came of one setting: batches per second in consecutive parts, all rounds."""

    blocks: tuple[float, ...]
    turns: tuple[float, ...] = ()
    problem: str | None = None


def tune(
    seeds: Sequence[Seed], measure: Callable[[Sequence[tuple[Setting, ...]]], list[MeasuredSetting]]
) -> list[Trial]:
    """Try the job as it is and every seed; the first trial is the job itself."""
    tried = [Seed((), Reading(value=1.0, unit="x", origin="the job itself")), *seeds]
    measured = measure([seed.settings for seed in tried])
    base = measured[0]
    return [_judge(seed, base, each) for seed, each in zip(tried, measured, strict=True)]


def _judge(seed: Seed, base: MeasuredSetting, measured: MeasuredSetting) -> Trial:
    speedup: Signal = Reading(value=1.0, unit="x", origin="itself")
    if seed.settings:
        speedup = _possible(find_speedup(base, measured), seed.most)
    return Trial(
        settings=list(seed.settings),
        predicted=seed.predicted,
        batches_per_s=list(measured.turns),
        speedup=speedup,
        verdict=judge(speedup),
    )


def _possible(speedup: Signal, most: float) -> Signal:
    """What was measured, unless no machine could have done it."""
    if isinstance(speedup, Missing) or speedup.value <= POSSIBLE * most:
        return speedup
    return Missing(
        reason=f"{speedup.value:.2f}x is more than workers and cores allow ({most:.2f}x), so that "
        "something else changed between the turns"
    )


def judge(speedup: Signal) -> TrialVerdict:
    """What an interval allows to say."""
    if isinstance(speedup, Missing):
        return "cannot tell"
    low, high = speedup.low, speedup.high
    if low is None or high is None:
        return "same"
    if low > 1 and speedup.value > 1 + AS_GOOD:
        return "faster"
    if high < 1 and speedup.value < 1 - AS_GOOD:
        return "slower"
    return "same" if high < 1 + 2 * AS_GOOD and low > 1 - 2 * AS_GOOD else "cannot tell"


def find_speedup(base: MeasuredSetting, measured: MeasuredSetting) -> Signal:
    """Ratio of means; its error from the spread of the parts."""
    if measured.problem is not None:
        return Missing(reason=measured.problem)
    if len(base.blocks) < 2 or len(measured.blocks) < 2:
        return Missing(reason="too few batches in a turn to judge")
    value, (low, high) = compare_means(base.blocks, measured.blocks)
    return Reading(
        value=value,
        unit="x",
        low=low,
        high=high,
        level=95,
        count=len(measured.blocks),
        origin="turns on the running job",
    )


def choose(trials: Sequence[Trial], now: Sequence[Setting]) -> list[Setting]:
    """The least settings that do as well as the best; empty to leave all as it is.

    As well: within what a job differs by from run to run, or within the standard error of the
    trial. More workers must show that they bring more, and fewer that they do as well: a trial that
    chance explains is never chosen.
    """
    told = [trial for trial in trials if not trial.settings or trial.verdict != "cannot tell"]
    best = max(_value(trial) for trial in told)
    good = [trial for trial in told if _value(trial, errors=1) >= best * (1 - AS_GOOD)]
    cheapest = min(good, key=lambda trial: count_resources(trial.settings, now))
    return cheapest.settings


def count_resources(settings: Sequence[Setting], now: Sequence[Setting]) -> tuple[float, float]:
    """Workers, then batches that wait in the queue."""
    value = {setting.knob: int(setting.value) for setting in now}
    value |= {setting.knob: int(setting.value) for setting in settings}
    workers = value.get("num_workers", 0)
    return workers, workers * value.get("prefetch_factor", 2)


def _value(trial: Trial, errors: int = 0) -> float:
    """What a trial gained, and so many standard errors more, of which its interval has about two.

    One that failed is worth nothing.
    """
    if isinstance(trial.speedup, Missing):
        return 0.0
    value, high = trial.speedup.value, trial.speedup.high or trial.speedup.value
    return float(value * (high / value) ** (errors / 2))


TOO_NOISY = (
    "No trial could be told from chance: this machine is too noisy now. More rounds (--rounds 5), "
    "longer turns (--seconds 10), or a machine that nobody else uses would help."
)


def is_too_noisy(trials: Sequence[Trial]) -> bool:
    """Whether trials were measured and none of them says anything."""
    measured = _find_measured(trials)
    return bool(measured) and all(trial.verdict == "cannot tell" for trial in measured)


def _is_open(trials: Sequence[Trial], predicted: Recommendation) -> bool:
    """Whether the trial of what the model recommends says neither yes nor no."""
    tried = [each for each in _find_measured(trials) if each.settings == predicted.settings]
    return any(trial.verdict == "cannot tell" for trial in tried)


def _find_measured(trials: Sequence[Trial]) -> list[Trial]:
    return [each for each in trials if each.settings and isinstance(each.speedup, Reading)]


def confirm(
    trials: Sequence[Trial],
    chosen: Sequence[Setting],
    now: Sequence[Setting],
    predicted: Recommendation | None,
) -> Recommendation | None:
    """What tuning recommends: what was measured, or the model's word where nothing could be.

    What the model says of cost and of the next limit is of its own setting alone. Where chance
    explains the trial of that setting, and nothing else was surely better, it is not refuted.
    """
    if is_too_noisy(trials) or (not chosen and predicted and _is_open(trials, predicted)):
        return predicted
    if not _find_measured(trials):
        why = "no other setting could be measured"
        return Recommendation(workers=int(count_resources((), now)[0]), why=why)
    trial = next(each for each in trials if each.settings == list(chosen))
    if predicted is not None and list(chosen) == predicted.settings:
        why = f"the trials confirm what the model recommends: {predicted.why}"
        return msgspec.structs.replace(predicted, speedup=trial.speedup, is_measured=True, why=why)
    return Recommendation(
        settings=list(chosen),
        workers=int(count_resources(chosen, now)[0]),
        speedup=trial.speedup,
        is_measured=True,
        why="the fewest workers that do as well as the best that was tried, their start counted"
        if chosen
        else "no setting that was tried is better",
        risk=risk_of(chosen, None),  # a stream is not tried with another number of workers
    )


def explain(trials: Sequence[Trial]) -> list[str]:
    """Each trial in a sentence; what follows from them is the recommendation's to say."""
    said = [_sentence(trial) for trial in trials if trial.settings]
    return [*said, TOO_NOISY] if is_too_noisy(trials) else said


def _sentence(trial: Trial) -> str:
    words = ", ".join(setting.text() for setting in trial.settings)
    predicted = (
        f"{trial.predicted.value:.2f}x predicted"
        if isinstance(trial.predicted, Reading)
        else "no prediction"
    )
    if isinstance(trial.speedup, Missing):
        return f"{words}: {predicted}; not measured: {trial.speedup.reason}."
    return f"{words}: {predicted}, {times(trial.speedup)} measured, {trial.verdict}."
