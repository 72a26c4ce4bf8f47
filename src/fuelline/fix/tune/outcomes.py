"""What the job's own account of its fixes amounts to: trials with their intervals, and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fuelline.fix.tune.search import MeasuredSetting, find_speedup, judge
from fuelline.schema.diagnosis.fixes import Fix, LoaderFixes, RemoteUse
from fuelline.schema.diagnosis.trials import (
    BUFFERED,
    TF_DATA,
    Recommendation,
    Setting,
    Trial,
    risk_of,
    write_threads,
)
from fuelline.schema.readings import Missing, Reading
from fuelline.schema.units import count, duration, rate, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.diagnosis.fixes import BeforeAfter, FixEvent
    from fuelline.schema.readings import Signal

_TRIED = Missing(reason="--fix tries a change on the running job instead of predicting it")


def summarise_fixes(events: Sequence[FixEvent]) -> list[LoaderFixes]:
    """One entry per loader, in the order in which they were met."""
    loaders: list[LoaderFixes] = []
    for event in events:
        if event.event == "served":
            same = [
                each
                for each in events
                if each.pid == event.pid and event.number in (each.loader, each.number)
            ]
            loaders.append(_summarise(event, same))
        elif event.event == "left" and not event.number:
            name = str(event.loader)
            note = f"Left alone: {event.why}."
            loaders.append(LoaderFixes(loader=name, pid=event.pid, workers=0, notes=[note]))
    return loaders


def adopt_measured(
    recommended: Recommendation | None, effect: BeforeAfter | None, fixes: Sequence[LoaderFixes]
) -> Recommendation | None:
    """What --fix found and kept outranks what the model predicts; it is what to write down.

    The model speaks of the job as it is now. Unless it knows of a better number, the script gets
    the number of workers that the job ended with, and the gain is the one that was measured.
    """
    gained = [fix for each in fixes for fix in each.fixes if is_remote(fix)]
    if effect is None or any(fix.outcome == "kept" for fix in gained):
        return recommended  # what other hosts gained is nothing that a script could ask for
    before, after = effect.before, effect.after
    named = {setting.knob: setting.value for setting in recommended.settings} if recommended else {}
    kept = [fix for each in fixes for fix in each.fixes if fix.outcome == "kept"]
    if any(each.framework == TF_DATA and each.fixes for each in fixes):
        return _adopt_pool(recommended, effect, kept) if kept else recommended
    if kept and named.get("num_workers", after.workers) == after.workers:
        return _adopt(recommended, effect, kept)
    if "num_workers" in named:
        return _without_own(recommended, before.workers)
    if recommended is None or recommended.workers in (0, before.workers):
        return recommended
    # The model would leave the job as --fix left it, which the script does not ask for.
    settings = [Setting(knob="num_workers", value=recommended.workers), *recommended.settings]
    speedup = Missing(reason="--fix could not tell it from the noise before the job ended")
    words = f"--fix left the job with {count(after.workers, 'worker')}"
    return msgspec.structs.replace(
        recommended,
        settings=settings,
        speedup=speedup,
        why=f"{words}; {recommended.why}",
        risk=risk_of(settings, None),
    )


def _adopt_pool(
    recommended: Recommendation | None, effect: BeforeAfter, kept: list[Fix]
) -> Recommendation | None:
    """The same of a tf.data pipeline, whose pool is another setting in the script."""
    adopted = _adopt(None, effect, kept)
    if adopted is None:
        return recommended
    is_buffered = any(each.knob == "prefetch_factor" for fix in kept for each in fix.trial.settings)
    words = [write_threads(effect.after.workers), *([BUFFERED] if is_buffered else [])]
    return msgspec.structs.replace(adopted, written="; ".join(words), risk="")


def _without_own(recommended: Recommendation | None, own: int) -> Recommendation | None:
    """The model may come back to the number that the script asks for: that is nothing to write."""
    if recommended is None:
        return None
    mine = Setting(knob="num_workers", value=own)
    settings = [setting for setting in recommended.settings if setting != mine]
    if len(settings) == len(recommended.settings):
        return recommended
    return msgspec.structs.replace(recommended, settings=settings)


def _adopt(
    recommended: Recommendation | None, effect: BeforeAfter, kept: list[Fix]
) -> Recommendation | None:
    before, after = effect.before, effect.after
    if before.workers == after.workers:
        return recommended
    written = [] if recommended is None else recommended.settings
    beside = [setting for setting in written if setting.knob != "num_workers"]
    speedup: Signal = Missing(reason="there was too little of the job before the first change")
    tried = kept[0].trial if len(kept) == 1 else None
    if tried and tried.settings == [Setting(knob="num_workers", value=after.workers)]:
        speedup = tried.speedup  # in turns, and the number that is told of this change
    elif before.step_seconds and after.step_seconds:
        speedup = Reading(
            value=before.step_seconds / after.step_seconds,
            unit="x",
            origin="steps before and after --fix",
        )
    words = "--fix found it while the job ran, and a script that asks for it has it from the start"
    settings = [Setting(knob="num_workers", value=after.workers), *beside]
    return msgspec.structs.replace(
        recommended or Recommendation(),
        settings=settings,
        workers=after.workers,
        speedup=_and_then(speedup, recommended) if beside else speedup,
        is_measured=not beside,
        why=f"{words}; {recommended.why}" if recommended is not None and beside else words,
        risk=risk_of(settings, None),  # --fix adds no workers to a stream
    )


def _and_then(measured: Signal, predicted: Recommendation | None) -> Signal:
    """What was measured, times what the model predicts for settings that were not tried."""
    more = None if predicted is None else predicted.speedup
    if not isinstance(measured, Reading) or not isinstance(more, Reading):
        return measured
    return msgspec.structs.replace(
        more,
        value=measured.value * more.value,
        low=None if more.low is None else measured.value * more.low,
        high=None if more.high is None else measured.value * more.high,
        origin="steps before and after --fix, then the pipeline model",
    )


def _summarise(served: FixEvent, events: Sequence[FixEvent]) -> LoaderFixes:
    ends = [event.active for event in events if event.event == "end"]
    fixes = [_fix(event) for event in _trials(events)]
    return LoaderFixes(
        loader=str(served.loader),
        pid=served.pid,
        workers=served.workers,
        workers_at_end=ends[-1] if ends else None,
        framework=served.framework,
        fixes=fixes,
        notes=_notes(events),
        remote=_find_remote(events, fixes),
    )


def _trials(events: Sequence[FixEvent]) -> list[FixEvent]:
    """Trials that were judged, and the last change if the job was killed before that."""
    judged = [event for event in events if event.event == "trial"]
    begun = [event for event in events if event.event == "change" and event.is_trial]
    return judged + begun[len(judged) :]


def _fix(event: FixEvent) -> Fix:
    if event.remote != event.was_remote:
        return _judge(event, [Setting(knob="remote_workers", value=event.remote)])
    was = event.was or (0, 0)
    settings = [Setting(knob="num_workers", value=event.active)] if event.active != was[0] else []
    if not settings or event.window > was[1]:
        depth = max(1, round(event.window / max(1, event.active)))
        if not was[0] or depth != round(was[1] / was[0]):
            settings.append(Setting(knob="prefetch_factor", value=depth))
    return _judge(event, settings)


def _judge(event: FixEvent, settings: list[Setting]) -> Fix:
    speedup = find_speedup(
        MeasuredSetting(tuple(event.before)), MeasuredSetting(tuple(event.after))
    )
    trial = Trial(
        settings=settings,
        predicted=_TRIED if event.predicted is None else _predicted(event.predicted),
        batches_per_s=event.after,
        speedup=speedup,
        verdict=judge(speedup),
    )
    # A job may end before the governor has looked often enough, and leave a setting surely better.
    is_sure = event.verdict == "cannot tell" and trial.verdict == "faster"
    return Fix(why=event.why, trial=trial, outcome="kept" if is_sure else event.verdict)


def _predicted(gain: float) -> Reading:
    return Reading(value=gain, unit="x", origin="the pipeline model, with figures of those workers")


def _find_remote(events: Sequence[FixEvent], fixes: Sequence[Fix]) -> RemoteUse | None:
    """What other hosts did; None if no worker there was ready."""
    ready = [event for event in events if event.event == "remote_ready"]
    if not ready:
        return None
    end = next((event for event in events if event.event == "remote_end"), None)
    kept = [fix.trial.speedup for fix in fixes if is_remote(fix) and fix.outcome == "kept"]
    last = kept[-1] if kept else None
    return RemoteUse(
        workers=ready[0].remote,
        hosts=ready[0].nodes,
        batches=end.batches if end is not None else None,
        held_seconds=end.seconds if end is not None else None,
        usd_per_core_hour=end.core_price if end is not None else None,
        speedup=last.value if isinstance(last, Reading) else None,
    )


def is_remote(fix: Fix) -> bool:
    """Whether it is about workers on other hosts."""
    return any(setting.knob == "remote_workers" for setting in fix.trial.settings)


def _remote_notes(events: Sequence[FixEvent]) -> list[str]:
    notes = []
    for event in events:
        if event.event == "remote_ready":
            hosts = count(len(event.nodes), "other host")
            notes.append(
                f"{count(event.remote, 'worker')} on {hosts} made the same first batches as this "
                f"host: one takes {duration(event.fetch_s)} there and has "
                f"{size(event.batch_bytes)}, and the line carries {rate(event.bytes_per_s)}."
            )
            notes += [f"Not used: {each}." for each in event.problems]
        elif event.event == "remote_left":
            notes.append(f"Other hosts were left alone: {event.why}.")
    lost = [event for event in events if event.event == "remote_lost"]
    if lost:
        ways = "; ".join(dict.fromkeys(event.how for event in lost))
        notes.append(
            f"{count(len(lost), 'worker')} on other hosts {'was' if len(lost) == 1 else 'were'} "
            f"lost ({ways}); their batches were prepared again, and {lost[-1].left} went on."
        )
    return notes


def _notes(events: Sequence[FixEvent]) -> list[str]:
    notes = [
        f"A worker {event.how}; the loader went on with {event.left}."
        for event in events
        if event.event == "lost"
    ]
    notes += _waiting(events)
    notes += [f"{event.setting}: {event.why}." for event in events if event.event == "setting"]
    notes += [f"Left alone: {event.why}." for event in events if event.event == "left"]
    if any(event.event == "varies" or event.is_varying for event in events):
        notes.append(_variation(events))
    if events and events[0].workers and [e.batches for e in events if e.event == "end"] == [0]:
        notes.append("No batch was taken from it, so there was nothing to measure.")
    notes += _remote_notes(events)
    blocked = [event.why for event in events if event.event == "blocked"]
    if blocked and blocked[-1]:
        notes.append(f"It still waits and was left as it is: {blocked[-1]}.")
    return notes


def _waiting(events: Sequence[FixEvent]) -> list[str]:
    """Of a tf.data pipeline: what would have come with its next iterator, which never came."""
    if not events or events[0].framework != TF_DATA:
        return []
    held = [event for event in events if event.event == "held"]
    begun = [event for event in events if event.event == "change"]
    if not held or (begun and begun[-1].at_ns > held[-1].at_ns):
        return []
    what = "a final prefetch" if held[-1].window > events[0].workers else "a larger pool"
    return [f"{what.capitalize()} would have come with its next iterator, and the job made none."]


def _variation(events: Sequence[FixEvent]) -> str:
    held = [event for event in events if event.event == "held"]
    because = "Its dataset draws random numbers, or keeps state, in each worker"
    if any(event.is_allowed for event in events):
        return (
            f"{because}: --allow random lets workers change in mid-epoch, and from a change on the "
            "random numbers are others than the plain loader's."
        )
    if any(event.is_late for event in events):
        return (
            f"{because}, which showed only after workers were added: some random numbers "
            "differ from those of the plain loader."
        )
    if not held:
        return f"{because}: workers would be changed between epochs only."
    begun = [event for event in events if event.event == "change"]
    if len(begun) < len(held):
        return (
            f"{because}: more workers would have come with the next epoch, and the job ended "
            "first. --allow random changes them in mid-epoch."
        )
    return (
        f"{because}: workers were changed between epochs only, and from then on the random numbers "
        "are those of a loader with so many workers."
    )
