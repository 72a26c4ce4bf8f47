"""Diagnosis in, Document out: what a person reads, in the order in which it matters.

Also here: what --fix did, for the report: each change with its trial and what it achieved.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fuelline.report.diagnosis.devices import describe_device_side, describe_devices
from fuelline.report.diagnosis.drawn import (
    Drawn,
    compare_stretches,
    is_outdone,
    is_waiting,
    judged_rank,
    link_ranks,
    offer_sliders,
    or_nothing,
    summarise_verdict,
    tell_story,
)
from fuelline.report.diagnosis.forecasts import describe_recommended
from fuelline.report.diagnosis.next_step import propose_next
from fuelline.report.diagnosis.start_up import describe_start_up
from fuelline.report.diagnosis.trace import describe_quality, describe_trace
from fuelline.report.diagnosis.words import (
    INPUT_STAGES,
    PART_WORDS,
    TIER_WORDS,
    TIME_WORDS,
    as_code,
    state,
    title_of,
)
from fuelline.report.document import (
    Bar,
    Bars,
    Block,
    Code,
    Document,
    Heading,
    Item,
    Items,
    Number,
    Said,
    Statement,
)
from fuelline.schema.diagnosis.trials import AS_GOOD, TF_DATA, name_setting
from fuelline.schema.readings import Missing, Reading
from fuelline.schema.units import count, duration, number, percent, times

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.schema.diagnosis.findings import (
        BudgetPart,
        Diagnosis,
        Evidence,
        Finding,
        Remedy,
        ServedFiles,
        StepStats,
        Window,
    )
    from fuelline.schema.diagnosis.fixes import BeforeAfter, Fix, LoaderFixes, RemoteUse, Stretch


_MOST_EVIDENCE = 8
_LEAST_CUT = 0.01


def write_document(
    diagnosis: Diagnosis,
    name: str | None = None,
    python: str | None = None,
    drawn: Drawn | None = None,
) -> Document:
    """The whole report.

    `name` is the word by which commands find the run (else its path); `python` is what `fuelline
    run` starts scripts with; `drawn` is for renderers that can draw.
    """
    next_command = propose_next(diagnosis, name or diagnosis.run.path, python)
    top = _verdict_finding(diagnosis)
    others = [finding for finding in diagnosis.findings if finding is not top]
    story, sliders, ranks, last = _draw(diagnosis, drawn, name or diagnosis.run.path)
    return Document(
        (
            summarise_verdict(diagnosis, top, _run_line(diagnosis), _list_bars(diagnosis)),
            *describe_quality(diagnosis),
            *_budget(diagnosis),
            *story,
            *describe_start_up(diagnosis),
            *describe_fixes(
                diagnosis.fixes,
                diagnosis.settings,
                diagnosis.fixed,
                is_drawn=drawn is not None,
                price=diagnosis.price_usd_per_hour,
            ),
            *_served(diagnosis.served),
            *describe_devices(diagnosis),
            *describe_trace(diagnosis),
            *ranks,
            *(_evidence(diagnosis, top) if top is not None else ()),
            *(_remedies(top, may_fix=_may_fix(diagnosis)) if top is not None else ()),
            *_recommended(diagnosis, top),
            *sliders,
            *_also_found(others, judged_rank(diagnosis)),
            *_unseen(diagnosis),
            *describe_device_side(diagnosis),
            *last,
            *_hourly_loss(diagnosis),
            *_energy(diagnosis),
            Statement(f"Next: {next_command}", is_whole=True, command=next_command),
        )
    )


def _draw(diagnosis: Diagnosis, drawn: Drawn | None, name: str) -> tuple[list[Block], ...]:
    """Time, sliders and ranks for those who can draw them; and their last heading."""
    if drawn is None:
        return [], [], [], []
    return (
        tell_story(drawn.picture),
        offer_sliders(drawn.grid, diagnosis.recommended, name),
        link_ranks(diagnosis),
        [Heading("What to type next", "Next")],
    )


def _verdict_finding(diagnosis: Diagnosis) -> Finding | None:
    return next(
        (found for found in diagnosis.findings if found.code == diagnosis.verdict.code), None
    )


def _run_line(diagnosis: Diagnosis) -> str:
    run = diagnosis.run
    words = [Path(run.command[0]).name, *run.command[1:]] if run.command else [run.run_id]
    parts = [shlex.join(words)]
    if run.seconds is not None:
        parts.append(duration(run.seconds))
    if run.tier:
        parts.append(f"attached to while it ran, tier {run.tier}: {TIER_WORDS[run.tier]}")
    if run.exit_code:
        parts.append(
            f"ended with {'signal ' if run.exit_code < 0 else 'exit code '}{abs(run.exit_code)}"
        )
    return "  ·  ".join(parts)


def _budget(diagnosis: Diagnosis) -> list[Block]:
    window, steps = diagnosis.window, diagnosis.steps
    if window is None or not diagnosis.budget:
        return []
    is_stepless = steps.kind == "time"
    bars = _list_bars(diagnosis)
    begin, end = "the end of the first step", "the last"
    if diagnosis.fixed is not None:
        begin, end = "the last change of --fix that lasted", "it"
        if _is_taken_back(diagnosis.fixes):
            begin = "--fix took its last change back"
    before = f"Not counted: {duration(window.before_seconds)} before {begin}"
    note = f"{before}, {duration(window.after_seconds)} after {end}."
    if diagnosis.start_up is not None and diagnosis.fixed is None:
        note = f"Not counted: {duration(window.before_seconds)} of start-up (see below), "
        note += (
            f"{duration(window.after_seconds)} after {'it' if is_stepless else 'the last step'}."
        )
    if diagnosis.trace is not None:
        many = len(diagnosis.devices) > 1
        note = "From the device's first event to its last."
        if many:
            note = "All devices together, each from its first event to its last."
        if diagnosis.trace.steps_from in ("profiler", "annotation"):
            is_marked = diagnosis.trace.steps_from == "profiler"
            what = "marked step" if is_marked else "annotation that repeats"
            whole = f"from the first {what} to the end of the last."
            note = f"All devices together, {whole}" if many else f"F{whole[1:]}"
            if max(window.before_seconds, window.after_seconds) >= _LEAST_CUT * window.seconds:
                note += (
                    f" Not counted: {duration(window.before_seconds)} of warm-up or other steps "
                    f"before, {duration(window.after_seconds)} after."
                )
    whose = judged_rank(diagnosis)
    note += f" These figures are of {whose}." if whose else ""
    return [Heading(_time_title(window, steps), "Time"), Bars(bars), Statement(note)]


def _time_title(window: Window, steps: StepStats) -> str:
    title = ["Where the time went: ", _seconds(window.seconds, "window/seconds")]
    if steps.kind == "time":
        return Said(*title, " without steps")
    kind = "steps" if steps.kind == "train" else "batches"
    kind = kind.removesuffix("s") if steps.count == 1 and steps.kind == "train" else kind
    title += [", ", Number(number(steps.count), steps.count, "steps/count"), f" {kind}"]
    if steps.mean is not None and steps.p95 is not None and steps.count > 1:
        title += [", mean ", _seconds(steps.mean, "steps/mean")]
        title += [", p95 ", _seconds(steps.p95, "steps/p95")]
    return Said(*title)


def _seconds(value: float, path: str) -> str:
    return Number(duration(value), value, path)


def _list_bars(diagnosis: Diagnosis) -> tuple[Bar, ...]:
    """One for each part that took any time."""
    # A ledger goes by the devices' time, which begins and ends elsewhere than the host's steps.
    steps = diagnosis.steps
    parted = 0 if diagnosis.trace is not None or steps.kind == "time" else steps.count
    words = TIME_WORDS if steps.kind == "time" else PART_WORDS
    return tuple(
        _bar(part, parted, f"budget/{place}/share", words, waits=is_waiting(part.part, diagnosis))
        for place, part in enumerate(diagnosis.budget)
        if part.share >= 0.001
    )


def _bar(part: BudgetPart, steps: int, path: str, words: Mapping[str, str], *, waits: bool) -> Bar:
    spent = f"{duration(part.seconds / steps)} per step" if steps else duration(part.seconds)
    return Bar(
        label=words.get(part.part, part.part),
        share=part.share,
        detail=spent,
        marked=waits,
        path=path,
        code=part.part,
    )


def _evidence(diagnosis: Diagnosis, finding: Finding) -> list[Block]:
    path = f"findings/{diagnosis.findings.index(finding)}/evidence"
    items = [
        Item(state(entry, f"{path}/{place}"), tuple(_details(entry)))
        for place, entry in enumerate(finding.evidence[:_MOST_EVIDENCE])
    ]
    title = f"Evidence (confidence: {finding.confidence})"
    return [Heading(title, "Evidence"), Items(tuple(items))] if items else []


def _details(entry: Evidence) -> list[str]:
    details = []
    if entry.mount is not None:
        details.append(f"mount {entry.mount}, file system {entry.fstype}")
    if entry.line is not None:
        details.append(Code(f"{entry.line}" + (f":  {entry.source}" if entry.source else "")))
    return details


def _may_fix(diagnosis: Diagnosis) -> bool:
    return not diagnosis.fixes and diagnosis.tried_by == "run --fix"


def _remedies(finding: Finding, *, may_fix: bool) -> list[Block]:
    items = tuple(
        Item(as_code(remedy.setting), tuple(_remedy_details(remedy)))
        for remedy in finding.remedies
        if may_fix or not remedy.by_fix
    )
    return [Heading("What to try next", "Remedies"), Items(items, numbered=True)] if items else []


def _recommended(diagnosis: Diagnosis, top: Finding | None) -> list[Block]:
    """The recommended loader setting, where no remedy of the verdict names it already."""
    recommended = diagnosis.recommended
    if recommended is None or isinstance(recommended.speedup, Missing):
        return []
    named = [] if top is None else [remedy.setting for remedy in top.remedies]
    if recommended.speedup.value < 1 + AS_GOOD or recommended.text() in named:
        return []
    name = "Of the loader's settings" if is_outdone(recommended, top) else "Recommended"
    return describe_recommended(recommended, name)


def _remedy_details(remedy: Remedy) -> list[str]:
    words = {
        "safe": "safe: same samples, same order, same numbers",
        "unsafe": "check first",
        "display": "for you to decide: Fuelline does not apply this",
    }
    details = [
        remedy.why,
        words[remedy.applicability] + (f" ({remedy.risk})" if remedy.risk else ""),
    ]
    details += _gain_details(remedy)
    return details


def _gain_details(remedy: Remedy) -> list[str]:
    """The prediction; the bound only where there is none."""
    details = [f"costs: {remedy.cost}"] if remedy.cost else []
    if remedy.gain_words:
        doubt = or_nothing(remedy.gain) if isinstance(remedy.gain, Reading) else ""
        details.append(f"predicted: {remedy.gain_words}{doubt}")
        if remedy.worth_usd_per_day is not None and not doubt:
            details.append(f"worth {remedy.worth_usd_per_day:.2f} USD per day and accelerator")
    elif remedy.at_most_speedup is not None:
        details.append(f"at most {remedy.at_most_speedup:.1f}x as fast")
    return details


def _also_found(findings: list[Finding], rank: str) -> list[Block]:
    if not findings:
        return []
    items = []
    for finding in findings:
        # What ranks do together is of all of them, and a device's or host's state is not a rank's.
        own = f", in {rank}" if rank and finding.stage in INPUT_STAGES else ""
        details = (as_code(finding.remedies[0].setting),) if finding.remedies else ()
        items.append(Item(f"{title_of(finding)}{own}: {finding.sentence}", details))
    return [Heading("Also found"), Items(tuple(items))]


def _unseen(diagnosis: Diagnosis) -> list[Block]:
    items = tuple(
        Item(f"{spot.what}: {spot.why}", (f"rules out: {spot.forbids}",))
        for spot in diagnosis.blindspots
    )
    return [Heading("What could not be seen", "Blindspots"), Items(items)] if items else []


def _served(served: ServedFiles | None) -> list[Block]:
    """Files that did not come from where the job thinks."""
    if served is None:
        return []
    items = []
    if served.packed:
        items.append(Item(f"{count(served.packed, 'file')} read from the pack"))
    opened = served.hits + served.copied + served.passed
    if opened:
        words = f"{percent(served.hits / opened)} of {count(opened, 'file')} read from the cache"
        more = [f"{count(served.copied, 'file')} copied into it"] if served.copied else []
        if served.passed:
            why = "too large, just changed, or no room"
            more.append(f"{count(served.passed, 'file')} left to the slow mount: {why}")
        items.append(Item(words, tuple(more)))
    return [Heading("Packed and cached files"), Items(tuple(items))] if items else []


def _hourly_loss(diagnosis: Diagnosis) -> list[Block]:
    losses = [finding.lost_usd for finding in diagnosis.findings if finding.lost_usd is not None]
    price = diagnosis.price_usd_per_hour
    if price is None or not losses or diagnosis.window is None:
        return []
    hourly = losses[0] / diagnosis.window.seconds * 3600
    words = f"At {price:g} USD per hour this costs {hourly:.2f} USD per hour and accelerator."
    return [Statement(words)]


def _energy(diagnosis: Diagnosis) -> list[Block]:
    """What a step and a sample take, and what the costliest cause wastes of it."""
    energy = diagnosis.energy
    if energy is None or not isinstance(energy.watts, Reading):
        return []
    each = [
        f"{number(signal.value)} J a {what}"
        for what, signal in (("step", energy.joules_per_step), ("sample", energy.joules_per_sample))
        if isinstance(signal, Reading)
    ]
    words = f"The accelerators draw {number(energy.watts.value)} W on average"
    words += f": {', '.join(each)}." if each else "."
    lost = next((finding.lost_joules for finding in diagnosis.findings), None)
    if isinstance(lost, Reading) and diagnosis.window is not None:
        hours = diagnosis.window.seconds / 3600
        low, high = ((end or 0.0) / hours / 3.6e6 for end in (lost.low, lost.high))
        words += f" The first finding wastes {number(low)} to {number(high)} kWh an hour of it."
    return [Statement(words)]


MOST_LOADERS = 5
_ENDED_SOON = (
    "the job ended too soon after the last change to be judged: all figures above are of the "
    "longest stretch under one setting, and not of the job as it is now"
)


_SAME_SETTINGS = (
    "both are of the same settings, as --fix took back what it changed: the machine, or what else "
    "ran on it, was another"
)


def _is_taken_back(loaders: list[LoaderFixes]) -> bool:
    outcomes = {fix.outcome for each in loaders for fix in each.fixes}
    return outcomes == {"rolled back"}


def describe_fixes(
    fixes: list[LoaderFixes],
    settings: list[Remedy],
    effect: BeforeAfter | None = None,
    *,
    is_drawn: bool = False,
    price: float | None = None,
) -> list[Block]:
    """A point for each loader and each setting left alone; settings alone without --fix."""
    left = tuple(Item(as_code(each.setting), tuple(_setting_details(each))) for each in settings)
    if not fixes:
        return [Heading("Settings that may help"), Items(left)] if left else []
    shown = [each for each in fixes if each.fixes or each.notes][:MOST_LOADERS] or fixes[:1]
    is_alone = len({each.pid for each in fixes}) == 1
    items = [
        Item(_title(each, is_alone=is_alone), tuple(_list_trial(each, price))) for each in shown
    ]
    if len(fixes) > len(shown):
        items.append(Item(f"{len(fixes) - len(shown)} more loaders: `diagnose --json` lists them"))
    if effect is not None:
        unit = _unit(next((each for each in fixes if each.fixes), None))
        words = f"before: {_describe_stretch(effect.before, unit)}"
        details = [f"now: {_describe_stretch(effect.after, unit)}"]
        if not effect.is_judged_after:
            details.append(_ENDED_SOON)
        elif _is_taken_back(fixes):
            details.append(_SAME_SETTINGS)
        items.insert(0, Item(words, tuple(details)))
    blocks: list[Block] = [Heading("What --fix did", "Fixes")]
    blocks += compare_stretches(effect) if effect is not None and is_drawn else []
    blocks.append(Items(tuple(items)))
    if left:
        blocks += [Heading("Settings that --fix leaves to you"), Items(left)]
    return blocks


def _unit(loader: LoaderFixes | None) -> str:
    """What prepares batches."""
    return "thread" if loader is not None and loader.framework == TF_DATA else "worker"


def _describe_stretch(stretch: Stretch, unit: str) -> str:
    """`139 ms per step, 115 samples/s, 65 % of it waiting for data, 1 worker`."""
    parts = [] if stretch.step_seconds is None else [f"{duration(stretch.step_seconds)} per step"]
    if stretch.samples_per_s is not None:
        parts.append(f"{number(stretch.samples_per_s)} samples/s")
    if stretch.wait_share is not None:
        parts.append(f"{percent(stretch.wait_share)} of the time waiting for data")
    parts.append(count(stretch.workers, unit))
    return ", ".join(parts)


def _setting_details(setting: Remedy) -> list[str]:
    gain = _gain_details(msgspec.structs.replace(setting, cost=""))
    return [setting.why, setting.risk or setting.cost, *gain]


def _title(loader: LoaderFixes, *, is_alone: bool) -> str:
    kept = [fix for fix in loader.fixes if fix.outcome == "kept"]
    name = loader.loader if is_alone else f"{loader.loader} (process {loader.pid})"
    if not loader.fixes:
        return f"{name}: nothing was changed"
    now = loader.workers_at_end
    own = count(loader.workers, _unit(loader))
    asked = "the job had" if loader.framework else "the job asked for"
    end = f", {now} at the end" if now is not None else ""
    changes = count(len(loader.fixes), "change")
    return f"{name}: {changes}, {len(kept)} kept ({asked} {own}{end})"


def _list_trial(loader: LoaderFixes, price: float | None = None) -> list[str]:
    used = [] if loader.remote is None else [_describe_remote(loader.remote, price)]
    return [*(_sentence(fix, loader.framework) for fix in loader.fixes), *loader.notes, *used]


def _describe_remote(used: RemoteUse, price: float | None) -> str:
    """What other hosts cost, and what they are worth, as far as prices were given."""
    words = f"{count(used.workers, 'core')} of other hosts"
    if used.batches is not None and used.held_seconds is not None:
        made = "1 batch" if used.batches == 1 else f"{used.batches:,} batches"
        words += f" prepared {made}, held for {duration(used.held_seconds)}"
    if used.usd_per_core_hour is None:
        words += "; --core-price says what they cost"
    else:
        words += f"; they cost {used.workers * used.usd_per_core_hour:.2f} USD per hour"
    if used.speedup is None:
        return f"{words}."
    if price is None:
        return f"{words}, and --price what the time of the accelerators is worth."
    worth = price * (used.speedup - 1)
    return f"{words}, and save {worth:.2f} USD per hour and accelerator."


def _sentence(fix: Fix, framework: str) -> str:
    trial = fix.trial
    words = ", ".join(name_setting(setting, framework) for setting in trial.settings)
    if isinstance(trial.speedup, Missing):
        achieved = f"not judged ({trial.speedup.reason})"
    else:
        achieved = f"{times(trial.speedup)} achieved"
    if isinstance(trial.predicted, Reading):
        achieved += f", {trial.predicted.value:.2f}x predicted"
    return f"{words}: {achieved}, {fix.outcome}; {fix.why}"
