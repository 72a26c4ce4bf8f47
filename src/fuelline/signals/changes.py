"""Two runs step by step in, what changed out; a change must stand out of what one run differs by.

The whole is the time for equal work: the mean length of a step, pauses included. Its doubt follows
how it is made up. Usual steps: neighbours are alike, so the spread is taken over blocks of
consecutive steps. What comes once in many steps (an epoch's start, a checkpoint): the spread over
its own occurrences. Both runs: as much as one job differs from its own repetition. And the machine:
what threads of the job waited for cores that others had may be all of a change, or none.

Where neighbours make the length of a step say nothing, a part still does against the others
(`signals/one_part.py`), and CPU time (`signals/undisturbed.py`). Of several recordings of a side,
how much they differ is measured.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import asdict, replace

from fuelline import __version__
from fuelline.schema.diagnosis.comparison import (
    Change,
    ComparedRun,
    RareChange,
    RelativeChange,
    RunComparison,
    RunWork,
)
from fuelline.schema.student import DEVIATIONS
from fuelline.schema.units import number
from fuelline.signals.comparable import as_shares, as_total, find_mismatch, find_unit, note_mismatch
from fuelline.signals.one_part import estimate_relative
from fuelline.signals.power import count_recordings
from fuelline.signals.spreads import half_width, rare_spreads, spread_of_mean
from fuelline.signals.undisturbed import (
    FEW_STEPS,
    LEAST,
    LEVEL,
    edge_error,
    estimate_cpu,
    find_common_slowdown,
    find_deviation,
    measured_half,
    pair_up,
    quantile,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fuelline.schema.diagnosis.comparison import Judgement, RunSamples
    from fuelline.signals.spreads import Spread
    from fuelline.signals.undisturbed import LeastTimes

_LEAST_SHARE = 0.01
"""Of a step: nobody would act on a smaller change."""
_REPEATED_FRAC = 0.02
"""Standard deviation of the mean step of one job from run to run on a machine that nothing else
uses, as a share: speed of the cores, placement in memory."""
_USUAL_FRAC = 0.9
_TRACE_LEVEL: Literal[95] = 95
"""Of a pair of traces: they have few steps, and nobody profiles them in every change."""
_CALLED = ("slower", "faster")
_OTHER_SIZE = 0.01
"""Of the samples of a step: beyond this it is not the same work."""


def compare_samples(
    before: RunSamples, after: RunSamples, threshold: float | None = None
) -> RunComparison:
    """One recording of each side."""
    return compare_sides([before], [after], threshold)


def compare_sides(
    befores: Sequence[RunSamples], afters: Sequence[RunSamples], threshold: float | None = None
) -> RunComparison:
    """Any number of recordings of each side; all changes, the largest first."""
    mismatch = find_mismatch((*befores, *afters))
    stepped = mismatch is None
    notes = _notes(befores[0], afters[0], mismatch)
    unit = find_unit((*befores, *afters), stepped=stepped)
    if not stepped:
        summed = as_shares if unit == "share" else as_total
        befores, afters = [[summed(run) for run in side] for side in (befores, afters)]
    afters = [_per_equal_work(befores[0], run) for run in afters]
    sides = _Sides(befores, afters, _joined(befores), _joined(afters))
    rare = _list_rare(sides)
    doubt = _step_doubt(sides, rare)
    one, other = fmean(sides.before.steps), fmean(sides.after.steps)
    step = _judged(unit, one, other, doubt, one)
    least, relative = estimate_cpu(sides.befores, sides.afters), _relative_change(sides)
    cpu = None if least is None else _cpu_change(sides, least)
    judged, by = _choose(step, relative, cpu)
    comparison = RunComparison(
        fuelline_version=__version__,
        before=_side(sides.befores, sides.before, stepped=stepped),
        after=_side(sides.afters, sides.after, stepped=stepped),
        unit=unit,
        step=step,
        parts=_changes("parts", sides, rare),
        kernels=_changes("kernels", sides),
        notes=notes,
        threshold=threshold,
        is_over=threshold is not None and _is_over(judged, threshold),
        judgement=judged.judgement,
        judged_by=by,
        rare=[_rare_change(part, sides) for part in rare],
        cpu=cpu,
        relative=relative,
        recordings_needed=_count_needed(step, doubt, least) if one else None,
    )
    comparison.check()
    return comparison


class _Sides(NamedTuple):
    """The recordings of both sides, and those of a side one after the other."""

    befores: Sequence[RunSamples]
    afters: Sequence[RunSamples]
    before: RunSamples
    after: RunSamples

    @property
    def is_measured(self) -> bool:
        """Whether some recordings are of the same job, so that they show how far two differ."""
        return len(self.befores) + len(self.afters) > 2


def _joined(runs: Sequence[RunSamples]) -> RunSamples:
    """All of its steps as those of one run."""
    first = runs[0]
    if len(runs) == 1:
        return first
    works = [run.work for run in runs if run.work is not None]
    queued = RunWork(queued=fmean(work.queued for work in works)) if works else None
    rare = dict.fromkeys(name for run in runs for name in run.rare)
    return replace(
        first,
        label=", ".join(run.label for run in runs),
        steps=[length for run in runs for length in run.steps],
        parts=_joined_parts([(run.parts, len(run.steps)) for run in runs]),
        kernels=_joined_parts([(run.kernels, len(run.steps)) for run in runs]),
        left_out=sum(run.left_out for run in runs),
        rare={name: [each for run in runs for each in run.rare.get(name, [])] for name in rare},
        work=queued,
    )


def _joined_parts(runs: list[tuple[dict[str, list[float]], int]]) -> dict[str, list[float]]:
    """What a run lacks is zero in each of its steps."""
    names = dict.fromkeys(name for parts, _ in runs for name in parts)
    return {
        name: [each for parts, steps in runs for each in parts.get(name, [0.0] * steps)]
        for name in names
    }


def _choose(
    step: Change, relative: RelativeChange | None, cpu: Change | None
) -> tuple[Change, Literal["step", "cpu", "parts"]]:
    """The length of steps decides where it can, then their parts, and without these CPU time.

    CPU time that grew in all parts alike is the machine's as likely as the job's.
    """
    if relative is not None and _is_seen_beside(step, relative):
        return relative, "parts"
    if relative is None and cpu is not None and _is_seen_beside(step, cpu):
        return cpu, "cpu"
    return step, "step"


def _is_over(judged: Change, threshold: float) -> bool:
    """Surely longer, as the headline says it, and by more than the threshold."""
    return judged.judgement == "slower" and (judged.share or 0.0) > threshold


def _is_seen_beside(step: Change, other: Change) -> bool:
    """Parts or CPU time have changed, and the length of steps does not speak against it.

    A device, or workers that keep up, may hide them: then steps are as long as before, and that is
    known too well for the change to fit in.
    """
    if other.judgement not in _CALLED or step.judgement in _CALLED:
        return False
    return step.low is not None and step.high is not None and step.low < other.change < step.high


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
        supply=None if after.work.supply is None else after.work.supply * scale,
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


class _Doubt(NamedTuple):
    """Of a change: noise to either side, and what the machine may have added.

    `down` of it after, so that the job itself may have got that much less longer; `up` before.
    """

    half: float | None
    level: Literal[95, 99] = LEVEL
    down: float = 0.0
    up: float = 0.0
    deviation: float | None = None
    """From one recording to the next: measured with several, allowed for with a pair."""


def _list_rare(sides: _Sides) -> list[str]:
    """Parts that are rare in all runs; one that has them in every step has no rare ones."""
    runs = (*sides.befores, *sides.afters)
    names = dict.fromkeys(name for run in runs for name in run.rare)
    return [
        name
        for name in names
        if all(name in run.rare or not any(run.parts.get(name, ())) for run in runs)
    ]


def _step_doubt(sides: _Sides, rare: list[str]) -> _Doubt:
    """Of the whole, from usual steps and rare parts, each with its own spread."""

    def spreads(*runs: RunSamples) -> list[Spread | None]:
        of_usual = [spread_of_mean(_without(run, rare)) for run in runs]
        return [*of_usual, *(each for part in rare for each in rare_spreads(part, *runs))]

    return _doubt(sides, lambda run: fmean(run.steps), spreads)


def _doubt(
    sides: _Sides,
    value: Callable[[RunSamples], float],
    spreads: Callable[[RunSamples, RunSamples], Sequence[Spread | None]],
) -> _Doubt:
    """As far as recordings of a side differ; of a single pair, all that may make them differ."""
    pairs = pair_up(sides.befores, sides.afters)
    doubts = [_pair_doubt(*pair, value, spreads(*pair)) for pair in pairs]
    allowed = fmean((each.half or 0.0) + max(each.down, each.up) for each in doubts)
    modelled = allowed / DEVIATIONS[LEVEL] / math.sqrt(2)
    if not sides.is_measured:
        return doubts[0]._replace(deviation=modelled if doubts[0].half is not None else None)
    values = [[value(run) for run in side] for side in (sides.befores, sides.afters)]
    deviation = max(find_deviation(values[0], values[1]), modelled)
    return _Doubt(measured_half(values[0], values[1], modelled), deviation=deviation)


def _pair_doubt(
    before: RunSamples,
    after: RunSamples,
    value: Callable[[RunSamples], float],
    spreads: Sequence[Spread | None],
) -> _Doubt:
    one, other = value(before), value(after)
    level: Literal[95, 99] = LEVEL if before.kind == "recorded" else _TRACE_LEVEL
    half = half_width(spreads, _between_runs(before, after, one, other), level)
    up, down = find_common_slowdown(before, after)
    return _Doubt(half, level, other * _hosts_share(after, down), one * _hosts_share(before, up))


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


def _hosts_share(run: RunSamples, alike: float) -> float:
    """The same as a share, with what all parts took longer `alike`; neighbours disturb all."""
    length = fmean(run.steps)
    return min(1.0, (_hosts_part(run) + alike) / length) if length else 0.0


def _excess(cpu: list[float]) -> float:
    """Mean CPU time of a usual step over its least; those with the most have rare work to do."""
    usual = sorted(cpu)[: round(_USUAL_FRAC * len(cpu))]
    return fmean(usual) - quantile(cpu, LEAST) if len(cpu) >= FEW_STEPS else 0.0


def _cpu_change(sides: _Sides, found: LeastTimes) -> Change:
    """CPU time of a step when it was disturbed least."""
    usual = max(_undisturbed_s(sides), found.before)
    return _judged("cpu", found.before, found.after, _Doubt(found.half), usual)


def _count_needed(step: Change, doubt: _Doubt, least: LeastTimes | None) -> int | None:
    """Recordings of each side, by the length of steps or by their CPU time; traces are short."""
    if doubt.level != LEVEL:
        return None
    known = [] if doubt.deviation is None else [doubt.deviation / step.before]
    known += [least.deviation / least.before] if least is not None and least.before else []
    return count_recordings(known)


def _relative_change(sides: _Sides) -> RelativeChange | None:
    """The trainer's own parts of a step against each other."""
    found = estimate_relative(sides.befores, sides.afters)
    if found is None:
        return None
    usual = max(_undisturbed_s(sides), found.before)
    change = found.after - found.before
    doubt = _Doubt(0.0, down=change - found.low, up=found.high - change)
    judged = _judged("parts", found.before, found.after, doubt, usual)
    return RelativeChange(**asdict(judged), part=found.part, factor=found.factor)


def _undisturbed_s(sides: _Sides) -> float:
    """A step before, less what the machine may have added."""
    return fmean(fmean(run.steps) - _hosts_part(run) for run in sides.befores)


def _between_runs(before: RunSamples, after: RunSamples, one: float, other: float) -> float:
    """Variance of a difference that is there without any: of repetitions, and of the cores' speed.

    Where the least CPU time of a step is blurred within a run, cores were slowed down by something
    that need not show in any counter, such as another virtual machine, and differ between runs.
    """
    pairs = ((before, one), (after, other))
    speeds = sum((_speed_error(run) * value) ** 2 for run, value in pairs)
    return _REPEATED_FRAC**2 * (one**2 + other**2) + speeds


def _speed_error(run: RunSamples) -> float:
    """Of a step: standard error of its CPU time from run to run, as a share of its length."""
    work, length = run.work, fmean(run.steps)
    if work is None or len(work.trainer_cpu) < FEW_STEPS or not length:
        return 0.0
    error = edge_error(work.trainer_cpu) ** 2
    if len(work.fetch_cpu) >= FEW_STEPS:
        error += (work.felt_frac * edge_error(work.fetch_cpu)) ** 2
    return min(1.0, math.sqrt(error) / length)


def _rare_change(part: str, sides: _Sides) -> RareChange:
    def a_step(run: RunSamples) -> float:
        return sum(run.rare.get(part, [])) / len(run.steps)

    runs = (sides.before, sides.after)
    times = [run.rare.get(part, []) for run in runs]
    means = [fmean(each) if each else None for each in times]
    doubt = _doubt(sides, a_step, lambda *pair: rare_spreads(part, *pair))
    one, other = map(a_step, runs)
    judged = _judged(part, one, other, doubt, fmean(sides.before.steps))
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


def _changes(
    of: Literal["parts", "kernels"], sides: _Sides, rare: Sequence[str] = ()
) -> list[Change]:
    names = dict.fromkeys([*getattr(sides.before, of), *getattr(sides.after, of)])
    found = [_part_change(name, of, sides, is_rare=name in rare) for name in names]
    return sorted(found, key=lambda change: (-abs(change.change), change.name))


def _part_change(name: str, of: str, sides: _Sides, *, is_rare: bool) -> Change:
    def values(run: RunSamples) -> list[float]:
        found: list[float] = getattr(run, of).get(name, [0.0] * len(run.steps))
        return found

    def spreads(*pair: RunSamples) -> Sequence[Spread | None]:
        return rare_spreads(name, *pair) if is_rare else [*map(spread_of_mean, map(values, pair))]

    one, other = (fmean(values(run)) for run in (sides.before, sides.after))
    doubt = _doubt(sides, lambda run: fmean(values(run)), spreads)
    return _judged(name, one, other, doubt, fmean(sides.before.steps))


def _judged(name: str, before: float, after: float, doubt: _Doubt, usual: float) -> Change:
    """A change with its interval."""
    change, half = after - before, doubt.half
    return Change(
        name=name,
        before=before,
        after=after,
        change=change,
        share=change / usual if usual else None,
        judgement=_judge(change, doubt, usual),
        # Nothing takes less than no time; a sum of changes may be below zero before.
        low=None if half is None else max(change - half - doubt.down, min(change, -before)),
        high=None if half is None else change + half + doubt.up,
        level=None if half is None else doubt.level,
    )


def _judge(change: float, doubt: _Doubt, usual: float) -> Judgement:
    if doubt.half is None:
        return "cannot tell"
    if abs(change) <= doubt.half or abs(change) < _LEAST_SHARE * usual:
        return "same"
    if abs(change) <= doubt.half + (doubt.down if change > 0 else doubt.up):
        return "cannot tell"
    return "slower" if change > 0 else "faster"


def _side(runs: Sequence[RunSamples], joined: RunSamples, *, stepped: bool) -> ComparedRun:
    return ComparedRun(
        label=joined.label,
        steps=len(joined.steps) if stepped else 0,
        seconds=fmean(joined.steps),
        verdict=joined.verdict,
        sentence=joined.sentence,
        total=sum(joined.steps),
        queued=None if joined.work is None else joined.work.queued,
        recordings=len(runs),
    )


def _notes(before: RunSamples, after: RunSamples, mismatch: str | None) -> list[str]:
    notes = []
    if mismatch is not None:
        notes += note_mismatch(before, after, mismatch)
    elif min(len(before.steps), len(after.steps)) < 2:
        notes.append("one run has a single step, so noise cannot be separated from change")
    if mismatch is None and (before.left_out or after.left_out):
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
