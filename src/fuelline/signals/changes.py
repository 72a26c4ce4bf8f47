"""Two runs step by step in, what changed out; a change must stand out of what one run differs by.

The whole is the time for equal work: the mean length of a step, pauses included. Its doubt follows
how it is made up. Usual steps: neighbours are alike, so the spread is taken over blocks of
consecutive steps. What comes once in many steps (an epoch's start, a checkpoint): the spread over
its own occurrences. Both runs: as much as one job differs from its own repetition. And the machine:
what threads of the job waited for cores that others had may be all of a change, or none.

Where neighbours make the length of a step say nothing, its CPU time still does: that of the steps
that were disturbed least, whose distribution has a sharp lower edge.
"""

from __future__ import annotations

import math
from statistics import fmean, variance
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from fuelline import __version__
from fuelline.schema.diagnosis.comparison import Change, ComparedRun, RareChange, RunComparison
from fuelline.schema.student import DEVIATIONS, find_t
from fuelline.schema.units import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.diagnosis.comparison import Judgement, RunSamples

_BLOCKS = 10
_LEAST_SHARE = 0.01
"""Of a step: a smaller change is none that anybody would act on."""
_REPEATED_FRAC = 0.02
"""Standard deviation of the mean step of one job from run to run on a machine that nothing else
uses, as a share: speed of the cores, placement in memory. bench/compare_power.py has runs to hold
it against."""
_CPU_REPEATED_FRAC = 0.01
"""The same for the least CPU time of a step."""
_LEAST_DISTURBED = 0.1
"""The tenth of the steps with the least CPU time."""
_EDGE = (0.05, 0.25)
_EDGE_ERROR = 0.6
"""Standard deviation of the lower tenth from run to run, of the distance between these quantiles.
Where neighbours disturb only some steps the edge is sharp and stays where it is; where they disturb
all of them, as those do that use the memory of a job that needs it, it is neither. Over 29 runs of
two jobs on two cores with 4 to 25 processes on them: 0.39 to 0.56 (bench/compare_power.py)."""
_CPU_DEVIATIONS = 2.576
"""Of a normal distribution to 99 %: the errors of an edge have longer tails than that has."""
_FEW_STEPS = 50
"""Fewer have no lower tenth to speak of."""
_EDGE_VARIANCE = 0.25
"""Of the number of times that a rare part falls into a window: it has one more or one less,
depending on where the window begins."""
_OTHER_SIZE = 0.01
"""Of the samples of a step: beyond this it is not the same work."""


def compare_samples(
    before: RunSamples, after: RunSamples, threshold: float | None = None
) -> RunComparison:
    """All changes, the largest first."""
    stepped = before.is_stepped and after.is_stepped
    if not stepped:
        before, after = _whole(before), _whole(after)
    notes = _notes(before, after, stepped=stepped)
    after = _per_equal_work(before, after)
    rare = _list_rare(before, after)
    step = _step_change("step" if stepped else "run", before, after, rare)
    cpu = _cpu_change(before, after)
    by_cpu = _is_seen_by_cpu_alone(step, cpu)
    judged = cpu if cpu is not None and by_cpu else step
    comparison = RunComparison(
        fuelline_version=__version__,
        before=_side(before, stepped=stepped),
        after=_side(after, stepped=stepped),
        unit="step" if stepped else "run",
        step=step,
        parts=_changes(before.parts, after.parts, before, after, rare),
        kernels=_changes(before.kernels, after.kernels, before, after),
        notes=notes,
        threshold=threshold,
        is_over=threshold is not None and _is_over(judged, threshold),
        judgement=judged.judgement,
        judged_by="cpu" if by_cpu else "step",
        rare=[_rare_change(part, before, after) for part in rare],
        cpu=cpu,
    )
    comparison.check()
    return comparison


def _is_over(judged: Change, threshold: float) -> bool:
    """Longer by more than the threshold; if the noise is known, surely longer at all."""
    is_sure = judged.judgement == "slower" or judged.low is None
    return is_sure and (judged.share or 0.0) > threshold


def _is_seen_by_cpu_alone(step: Change, cpu: Change | None) -> bool:
    """CPU time has changed, and the length of steps does not speak against it.

    A device, or workers that keep up, may hide CPU time: then steps are as long as before, and that
    is known too well for the change to fit in.
    """
    if cpu is None or cpu.judgement not in ("slower", "faster") or step.judgement != "same":
        return False
    return step.low is not None and step.high is not None and step.low < cpu.change < step.high


def _per_equal_work(before: RunSamples, after: RunSamples) -> RunSamples:
    """Steps of another batch size are scaled to as many samples as those before had."""
    if not before.samples or not after.samples or _is_as_many(before.samples, after.samples):
        return after
    scale = before.samples / after.samples
    work = after.work and replace(
        after.work,
        trainer_cpu=_scaled(after.work.trainer_cpu, scale),
        fetch_cpu=_scaled(after.work.fetch_cpu, scale),
        queued=after.work.queued * scale,
    )
    return replace(
        after,
        steps=_scaled(after.steps, scale),
        parts={name: _scaled(values, scale) for name, values in after.parts.items()},
        rare={name: _scaled(values, scale) for name, values in after.rare.items()},
        kernels={name: _scaled(values, scale) for name, values in after.kernels.items()},
        work=work,
    )


def _is_as_many(one: float, other: float) -> bool:
    return abs(other / one - 1) <= _OTHER_SIZE


def _scaled(values: list[float], scale: float) -> list[float]:
    return [value * scale for value in values]


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


class _Spread(NamedTuple):
    """Of a mean: its variance, and how well that is known."""

    variance: float
    freedom: float


def _list_rare(before: RunSamples, after: RunSamples) -> list[str]:
    """Parts that are rare in both runs; one that has them in every step has no rare ones."""
    names = dict.fromkeys([*before.rare, *after.rare])
    runs = (before, after)
    return [
        name
        for name in names
        if all(name in run.rare or not any(run.parts.get(name, ())) for run in runs)
    ]


def _step_change(name: str, before: RunSamples, after: RunSamples, rare: list[str]) -> Change:
    """The whole, from usual steps and rare parts, each with its own spread."""
    usual = [_without(run, rare) for run in (before, after)]
    spreads = [_spread_of_mean(values) for values in usual]
    for part in rare:
        spreads += _rare_spreads(part, before, after)
    one, other = fmean(before.steps), fmean(after.steps)
    half = _half_width(spreads, _between_runs(before, after, one, other))
    hosts = [_hosts_part(run) for run in (before, after)]
    return _judged(name, one, other, half, one, down=hosts[1], up=hosts[0])


def _without(run: RunSamples, rare: list[str]) -> list[float]:
    """Length of each step less its rare parts."""
    taken = [run.parts[part] for part in rare if part in run.parts]
    return [length - sum(part[place] for part in taken) for place, length in enumerate(run.steps)]


def _hosts_part(run: RunSamples) -> float:
    """What the machine may have added to a step: waiting for others' cores, and slower cores.

    Steps differ in their work as well, so that without neighbours no CPU time is put down to them.
    """
    if run.work is None:
        return 0.0
    work = run.work
    slower = _excess(work.trainer_cpu) + work.felt_frac * _excess(work.fetch_cpu)
    return min(work.queued + work.disturbed_frac * slower, fmean(run.steps))


def _hosts_share(run: RunSamples) -> float:
    """The same as a share; neighbours disturb all parts of a step alike."""
    length = fmean(run.steps)
    return _hosts_part(run) / length if length else 0.0


def _excess(cpu: list[float]) -> float:
    """Mean CPU time of a step over its least."""
    return fmean(cpu) - _quantile(cpu, _LEAST_DISTURBED) if len(cpu) >= _FEW_STEPS else 0.0


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, int(share * len(ordered))))]


def _cpu_change(before: RunSamples, after: RunSamples) -> Change | None:
    """CPU time of a step when it was disturbed least.

    The trainer's, and of its workers' what it waits for: with the same weight in both runs, or a
    wait would count as work.
    """
    one, other = before.work, after.work
    if one is None or other is None:
        return None
    felt = fmean((one.felt_frac, other.felt_frac))
    pairs = [(one.trainer_cpu, other.trainer_cpu, 1.0), (one.fetch_cpu, other.fetch_cpu, felt)]
    known = [pair for pair in pairs if min(len(pair[0]), len(pair[1])) >= _FEW_STEPS]
    if not one.trainer_cpu or pairs[0] not in known:
        return None
    least = [
        sum(weight * _quantile(pair[side], _LEAST_DISTURBED) for *pair, weight in known)
        for side in (0, 1)
    ]
    errors = [weight * _edge_error(values) for *pair, weight in known for values in pair]
    repeated = _repetition(least[0], least[1], _CPU_REPEATED_FRAC)
    half = _CPU_DEVIATIONS * math.sqrt(sum(error**2 for error in errors) + repeated)
    undisturbed = max(fmean(before.steps) - _hosts_part(before), least[0])
    return _judged("cpu", least[0], least[1], half, undisturbed)


def _edge_error(values: list[float]) -> float:
    """Standard error of the lower tenth, from how sharp the lower edge is."""
    low, high = (_quantile(values, share) for share in _EDGE)
    return _EDGE_ERROR * (high - low)


def _between_runs(before: RunSamples, after: RunSamples, one: float, other: float) -> float:
    """Variance of a difference that is there without any: of repetitions, and of the cores' speed.

    Where the least CPU time of a step is blurred within a run, cores were slowed down by something
    that need not show in any counter, such as another virtual machine, and differ between runs.
    """
    pairs = ((before, one), (after, other))
    speeds = sum((_speed_error(run) * value) ** 2 for run, value in pairs)
    return (
        _repetition(one, other, _REPEATED_FRAC) + speeds * (_CPU_DEVIATIONS / DEVIATIONS[95]) ** 2
    )


def _speed_error(run: RunSamples) -> float:
    """Of a step: standard error of its CPU time from run to run, as a share of its length."""
    work, length = run.work, fmean(run.steps)
    if work is None or len(work.trainer_cpu) < _FEW_STEPS or not length:
        return 0.0
    error = _edge_error(work.trainer_cpu) ** 2
    if len(work.fetch_cpu) >= _FEW_STEPS:
        error += (work.felt_frac * _edge_error(work.fetch_cpu)) ** 2
    return min(1.0, math.sqrt(error) / length)


def _repetition(one: float, other: float, frac: float) -> float:
    """Variance of the difference of two runs of the same job."""
    return frac**2 * (one**2 + other**2)


def _rare_change(part: str, before: RunSamples, after: RunSamples) -> RareChange:
    times = [run.rare.get(part, []) for run in (before, after)]
    means = [fmean(each) if each else None for each in times]
    totals = [sum(each) / len(run.steps) for each, run in zip(times, (before, after), strict=True)]
    one, other = totals
    repeated = _between_runs(before, after, one, other)
    half = _half_width(_rare_spreads(part, before, after), repeated)
    up, down = one * _hosts_share(before), other * _hosts_share(after)
    judged = _judged(part, one, other, half, fmean(before.steps), down=down, up=up)
    is_known = min(map(len, times)) >= 2
    return RareChange(
        name=part,
        count_before=len(times[0]),
        count_after=len(times[1]),
        before=means[0],
        after=means[1],
        change=judged.change,
        judgement=judged.judgement if is_known or not all(times) else "cannot tell",
        low=judged.low,
        high=judged.high,
        level=judged.level,
    )


def _rare_spreads(part: str, before: RunSamples, after: RunSamples) -> list[_Spread]:
    """Of the seconds a step that a rare part takes: from its length, and from how often it came.

    As many steps and as many times in both runs are equal work; else a window may hold one time
    more than the other only because of where it begins.
    """
    times = [run.rare.get(part, []) for run in (before, after)]
    counts = [(len(run.steps), len(each)) for run, each in zip((before, after), times, strict=True)]
    edge = 0.0 if counts[0] == counts[1] else _EDGE_VARIANCE
    both = [*times[0], *times[1]]
    found = []
    for each, (steps, count) in zip(times, counts, strict=True):
        of_one = variance(each) if count >= 2 else _spread_of_all(both)
        found.append(_Spread(count * of_one / steps**2, max(1, count - 1)))
        mean = fmean(each) if each else fmean(both)
        found.append(_Spread(edge * (mean / steps) ** 2, len(both)))
    return found


def _spread_of_all(times: list[float]) -> float:
    """Where a run has one time only: as all differ, or by all of its length."""
    return variance(times) if len(times) >= 2 else times[0] ** 2


def _changes(
    one: dict[str, list[float]],
    other: dict[str, list[float]],
    before: RunSamples,
    after: RunSamples,
    rare: Sequence[str] = (),
) -> list[Change]:
    none_before, none_after = [0.0] * len(before.steps), [0.0] * len(after.steps)
    usual = fmean(before.steps)
    hosts = [_hosts_share(run) for run in (before, after)]
    found = []
    for name in dict.fromkeys([*one, *other]):
        first, second = one.get(name, none_before), other.get(name, none_after)
        spreads = (
            _rare_spreads(name, before, after)
            if name in rare
            else [_spread_of_mean(first), _spread_of_mean(second)]
        )
        means = fmean(first), fmean(second)
        half = _half_width(spreads, _between_runs(before, after, *means))
        up, down = (mean * share for mean, share in zip(means, hosts, strict=True))
        found.append(_judged(name, *means, half, usual, down=down, up=up))
    return sorted(found, key=lambda change: (-abs(change.change), change.name))


def _judged(
    name: str,
    before: float,
    after: float,
    half: float | None,
    usual: float,
    *,
    down: float = 0.0,
    up: float = 0.0,
) -> Change:
    """A change with its interval: noise to either side, and what the machine may have added.

    `down` of it after, so that the job itself may have got that much less longer; `up` before.
    """
    change = after - before
    low = None if half is None else change - half - down
    high = None if half is None else change + half + up
    return Change(
        name=name,
        before=before,
        after=after,
        change=change,
        share=change / usual if usual else None,
        judgement=_judge(change, low, high, usual),
        low=low,
        high=high,
        level=None if half is None else 95,
    )


def _judge(change: float, low: float | None, high: float | None, usual: float) -> Judgement:
    if low is None or high is None:
        return "cannot tell"
    if low <= 0 <= high or abs(change) < _LEAST_SHARE * usual:
        return "same"
    return "slower" if change > 0 else "faster"


def _half_width(spreads: Sequence[_Spread | None], repeated: float) -> float | None:
    """Half of the 95 % interval of the difference of means; None if a run has but one step.

    As Welch does it: variances add up, and so do, by their weight, the doubts about them. How much
    runs differ (`repeated`) is known from many.
    """
    known = [spread for spread in spreads if spread is not None]
    if len(known) < len(spreads):
        return None
    within = sum(spread.variance for spread in known)
    both = within + repeated
    if both == 0:
        return 0.0
    doubt = sum(spread.variance**2 / spread.freedom for spread in known)
    free = both**2 / doubt if doubt else math.inf
    return find_t(free) * math.sqrt(both)


def _spread_of_mean(values: Sequence[float]) -> _Spread | None:
    """By blocks where there are enough steps; None for a single one."""
    if len(values) < 2:
        return None
    if len(values) >= 2 * _BLOCKS:
        values = [
            fmean(values[len(values) * block // _BLOCKS : len(values) * (block + 1) // _BLOCKS])
            for block in range(_BLOCKS)
        ]
    return _Spread(variance(values) / len(values), len(values) - 1)


def _side(run: RunSamples, *, stepped: bool) -> ComparedRun:
    return ComparedRun(
        label=run.label,
        steps=len(run.steps) if stepped else 0,
        seconds=fmean(run.steps),
        verdict=run.verdict,
        sentence=run.sentence,
        total=sum(run.steps),
        queued=None if run.work is None else run.work.queued,
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
    if before.samples and after.samples and not _is_as_many(before.samples, after.samples):
        notes.append(
            f"a step has {number(before.samples)} samples before and {number(after.samples)} "
            f"after; all times after are per {number(before.samples)} samples"
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
