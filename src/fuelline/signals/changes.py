"""Two runs step by step in, what changed out; a change must stand out of the steps' own spread.

Neighbouring steps are alike, so the spread is taken over blocks of consecutive steps. Means of both
runs are then compared as Welch does. What one run differs from its own repetition is not in it: a
change of a few percent between two runs on a shared machine may be the machine.
"""

from __future__ import annotations

import math
from statistics import fmean, variance
from typing import TYPE_CHECKING

from fuelline import __version__
from fuelline.schema.diagnosis.comparison import Change, ComparedRun, RunComparison
from fuelline.schema.student import find_t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.diagnosis.comparison import Judgement, RunSamples

_BLOCKS = 10
_LEAST_SHARE = 0.01
"""Of a step: a smaller change is none that anybody would act on."""


def compare_samples(
    before: RunSamples, after: RunSamples, threshold: float | None = None
) -> RunComparison:
    """All changes, the largest first."""
    stepped = before.is_stepped and after.is_stepped
    if not stepped:
        before, after = _whole(before), _whole(after)
    usual = fmean(before.steps)
    step = _change("step" if stepped else "run", before.steps, after.steps, usual)
    comparison = RunComparison(
        fuelline_version=__version__,
        before=_side(before, stepped=stepped),
        after=_side(after, stepped=stepped),
        unit="step" if stepped else "run",
        step=step,
        parts=_changes(before.parts, after.parts, before, after),
        kernels=_changes(before.kernels, after.kernels, before, after),
        notes=_notes(before, after, stepped=stepped),
        threshold=threshold,
        is_over=threshold is not None and _is_over(step, threshold),
    )
    comparison.check()
    return comparison


def _is_over(step: Change, threshold: float) -> bool:
    """Longer by more than the threshold; if the noise is known, surely longer at all."""
    return (step.share or 0.0) > threshold and (step.low is None or step.low > 0)


def _whole(run: RunSamples) -> RunSamples:
    """All steps as one."""
    return type(run)(
        label=run.label,
        kind=run.kind,
        steps=[sum(run.steps)],
        is_stepped=False,
        parts={name: [sum(values)] for name, values in run.parts.items()},
        kernels={name: [sum(values)] for name, values in run.kernels.items()},
        devices=run.devices,
        ranks=run.ranks,
        command=run.command,
        verdict=run.verdict,
        sentence=run.sentence,
    )


def _changes(
    one: dict[str, list[float]],
    other: dict[str, list[float]],
    before: RunSamples,
    after: RunSamples,
) -> list[Change]:
    none_before, none_after = [0.0] * len(before.steps), [0.0] * len(after.steps)
    usual = fmean(before.steps)
    found = [
        _change(name, one.get(name, none_before), other.get(name, none_after), usual)
        for name in dict.fromkeys([*one, *other])
    ]
    return sorted(found, key=lambda change: (-abs(change.change), change.name))


def _change(name: str, one: Sequence[float], other: Sequence[float], usual: float) -> Change:
    before, after = fmean(one), fmean(other)
    half = _half_width(one, other)
    change = after - before
    return Change(
        name=name,
        before=before,
        after=after,
        change=change,
        share=change / usual if usual else None,
        judgement=_judge(change, half, usual),
        low=None if half is None else change - half,
        high=None if half is None else change + half,
        level=None if half is None else 95,
    )


def _judge(change: float, half: float | None, usual: float) -> Judgement:
    if half is None:
        return "cannot tell"
    if abs(change) <= half or abs(change) < _LEAST_SHARE * usual:
        return "same"
    return "slower" if change > 0 else "faster"


def _half_width(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Half of the 95 % interval of the difference of means; None if a run has but one step."""
    spreads = [_spread_of_mean(values) for values in (one, other)]
    if any(spread is None for spread in spreads):
        return None
    (first, free_first), (second, free_second) = (spread or (0.0, 1) for spread in spreads)
    both = first + second
    if both == 0:
        return 0.0
    free = both**2 / (first**2 / free_first + second**2 / free_second)
    return find_t(free) * math.sqrt(both)


def _spread_of_mean(values: Sequence[float]) -> tuple[float, int] | None:
    """Variance of the mean and its degrees of freedom."""
    if len(values) < 2:
        return None
    if len(values) >= 2 * _BLOCKS:
        values = [
            fmean(values[len(values) * block // _BLOCKS : len(values) * (block + 1) // _BLOCKS])
            for block in range(_BLOCKS)
        ]
    return variance(values) / len(values), len(values) - 1


def _side(run: RunSamples, *, stepped: bool) -> ComparedRun:
    return ComparedRun(
        label=run.label,
        steps=len(run.steps) if stepped else 0,
        seconds=fmean(run.steps),
        verdict=run.verdict,
        sentence=run.sentence,
    )


def _notes(before: RunSamples, after: RunSamples, *, stepped: bool) -> list[str]:
    notes = []
    if not stepped:
        notes.append(
            "several steps are not known in both runs, so totals are compared; they also differ if "
            "one run was simply longer"
        )
    elif min(len(before.steps), len(after.steps)) < 2:
        notes.append("one run has a single step, so noise cannot be separated from change")
    if before.left_out or after.left_out:
        notes.append(
            f"left out: steps at the ends that were recorded in part ({before.left_out} before, "
            f"{after.left_out} after)"
        )
    if before.ranks != after.ranks:
        notes.append(f"{before.ranks} ranks before, {after.ranks} after")
    if before.devices != after.devices:
        notes.append(f"devices: {_devices(before)} before, {_devices(after)} after")
    is_known = bool(before.command and after.command)  # not with `run --no-command`
    if is_known and before.command != after.command and before.kind == "recorded":
        notes.append(
            f"commands: {' '.join(before.command)} before, {' '.join(after.command)} after"
        )
    return notes


def _devices(run: RunSamples) -> str:
    names = [name or "unnamed" for name in run.devices]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or "none"
