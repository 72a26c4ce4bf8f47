"""What renderers that can draw show beyond the text: the first screen, time, ranks, sliders.

Every number is one of the diagnosis, of the picture that was made of the same recording, or of the
same model as `fuelline whatif` asks.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from fuelline.report.diagnosis.devices import LEAST_USD
from fuelline.report.diagnosis.words import PART_WORDS, WAITING_PARTS, as_code, label_of
from fuelline.report.document import (
    Advice,
    Bar,
    Block,
    Chain,
    Figure,
    Heading,
    Link,
    SideBySide,
    Slider,
    Sliders,
    Statement,
    Story,
    Summary,
    Table,
)
from fuelline.schema.diagnosis.trials import AS_GOOD
from fuelline.schema.readings import Missing, Reading
from fuelline.schema.units import duration, number, percent, times

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.findings import Diagnosis, Finding, LateRank, Remedy
    from fuelline.schema.diagnosis.fixes import BeforeAfter
    from fuelline.schema.diagnosis.forecasts import ForecastAxis, ForecastGrid, GridKnob
    from fuelline.schema.diagnosis.picture import RunPicture, StepLevel
    from fuelline.schema.diagnosis.trials import KnobName, Recommendation

_HEALTHY_LIMIT = "math"
_STRETCHES = 12
"""Rows of a story told in text."""


@dataclass(frozen=True)
class Drawn:
    """What a page needs beside the diagnosis; None where the run has nothing of the kind."""

    picture: RunPicture | None = None
    grid: ForecastGrid | Missing | None = None


def summarise_verdict(
    diagnosis: Diagnosis, top: Finding | None, title: str, bars: tuple[Bar, ...]
) -> Summary:
    """The first screen."""
    return Summary(
        title=title,
        sentence=diagnosis.verdict.sentence,
        label=label_of(diagnosis.verdict, diagnosis.findings),
        alarm=diagnosis.verdict.limit != _HEALTHY_LIMIT,
        unsure=diagnosis.verdict.code is None,
        figures=tuple(_list_figures(diagnosis, top)),
        advice=_advise(diagnosis, top),
        shares=bars,
    )


def _list_figures(diagnosis: Diagnosis, top: Finding | None) -> list[Figure]:
    """The cost in time and money, or how well it goes; then the pace."""
    found: list[Figure] = []
    reached = diagnosis.verdict.share_of_wall
    if top is not None:
        path = f"findings/{diagnosis.findings.index(top)}"
        share, lost_s = top.lost_share, top.lost_seconds
        of_time, in_run = _whose(diagnosis, top)
        found = [
            Figure(of_time, percent(share), f"{path}/lost_share", share),
            Figure(in_run, duration(lost_s), f"{path}/lost_seconds", lost_s),
            *_list_money(diagnosis, top, path),
        ]
    elif reached is not None:
        words = percent(reached)
        found = [Figure("of the time in the steps", words, "verdict/share_of_wall", reached)]
    steps = diagnosis.steps
    if steps.samples_per_s is not None:
        pace = number(steps.samples_per_s)
        found.append(Figure("samples per second", pace, "steps/samples_per_s", steps.samples_per_s))
    elif steps.mean is not None:
        found.append(Figure("per step", duration(steps.mean), "steps/mean", steps.mean))
    return found


def _whose(diagnosis: Diagnosis, top: Finding) -> tuple[str, str]:
    """Words for what is lost: where one rank is late, the job loses less than all waits added."""
    late = diagnosis.collectives.culprits
    if diagnosis.trace is None and late and (top.stage, top.limit) == ("sync", "imbalance"):
        return f"of the job's time lost to rank {late[0].rank}", "the job is longer by"
    return "of the time lost", "lost in this run"


def _list_money(diagnosis: Diagnosis, top: Finding, path: str) -> list[Figure]:
    if top.lost_usd is None or diagnosis.window is None:
        return [Figure("per hour: --price says what it costs", "price not given")]
    hourly = top.lost_usd / diagnosis.window.seconds * 3600
    found = [Figure("lost per hour and accelerator", f"{hourly:.2f} USD")]
    if top.lost_usd >= LEAST_USD:
        lost = f"{top.lost_usd:.2f} USD"
        found.append(Figure("what that cost", lost, f"{path}/lost_usd", top.lost_usd))
    return found


def _advise(diagnosis: Diagnosis, top: Finding | None) -> Advice | None:
    """What gains most: the recommended setting, or the first remedy of the verdict."""
    recommended = diagnosis.recommended
    if (
        recommended is not None
        and recommended.settings
        and isinstance(recommended.speedup, Reading)
        and recommended.speedup.value >= 1 + AS_GOOD
        and not is_outdone(recommended, top)
    ):
        kind = "measured" if recommended.is_measured else "predicted"
        then = (
            f"{kind}; then the limit is {recommended.limit_words}"
            if recommended.limit_words
            else kind
        )
        then += or_nothing(recommended.speedup)
        gain = Figure(then, times(recommended.speedup), "recommended/speedup/value",
                      recommended.speedup.value)  # fmt: skip
        risk = (f"Check first: {recommended.risk}.",) if recommended.risk else ()
        why = f"{recommended.why[:1].upper()}{recommended.why[1:]}."
        return Advice(as_code(recommended.text()), gain, (why, *risk))
    remedies = [] if top is None else [
        (place, each)
        for place, each in enumerate(top.remedies)
        if not each.by_fix or (not diagnosis.fixes and diagnosis.tried_by == "run --fix")
    ]  # fmt: skip
    if top is None or not remedies:
        return None
    place, remedy = remedies[0]
    path = f"findings/{diagnosis.findings.index(top)}/remedies/{place}"
    gain = _gain_of(remedy, path) or Figure(
        "of the time at most; no gain was predicted",
        percent(top.lost_share),
        f"findings/{diagnosis.findings.index(top)}/lost_share",
        top.lost_share,
    )
    risk = (f"Check first: {remedy.risk}.",) if remedy.risk else ()
    why = f"{remedy.why[:1].upper()}{remedy.why[1:]}."
    return Advice(as_code(remedy.setting), gain, (why, *risk))


def is_outdone(recommended: Recommendation, top: Finding | None) -> bool:
    """Whether the verdict's first remedy is predicted to gain more than the loader's settings."""
    gain = top.remedies[0].gain if top is not None and top.remedies else None
    own = recommended.speedup
    if not isinstance(gain, Reading) or not isinstance(own, Reading) or recommended.is_measured:
        return False
    return gain.value > own.value * (1 + AS_GOOD)


def or_nothing(gain: Reading) -> str:
    """Said of a gain whose interval begins below 1."""
    return "; it may gain nothing" if gain.low is not None and gain.low < 1 else ""


def _gain_of(remedy: Remedy, path: str) -> Figure | None:
    if isinstance(remedy.gain, Reading):
        words = f"predicted{or_nothing(remedy.gain)}"
        return Figure(words, times(remedy.gain), f"{path}/gain/value", remedy.gain.value)
    most = remedy.at_most_speedup
    if most is None:
        return None
    return Figure("as fast", f"at most {most:.1f}x", f"{path}/at_most_speedup", most)


def compare_stretches(effect: BeforeAfter) -> list[Block]:
    """The job before --fix, and as it left it."""
    before, after = effect.before, effect.after
    entries = (
        ("time per step", before.step_seconds, after.step_seconds, duration),
        ("samples per second", before.samples_per_s, after.samples_per_s, number),
        ("waiting for data", before.wait_share, after.wait_share, percent),
        ("workers", float(before.workers), float(after.workers), number),
    )
    known = [
        (name, old, new, words)
        for name, old, new, words in entries
        if old is not None and new is not None
    ]
    rows = tuple((name, words(old), words(new)) for name, old, new, words in known)
    values = tuple((old, new) for _, old, new, _ in known)
    return [SideBySide(Table(("", "before", "now"), rows), values, is_alike=False)]


def tell_story(picture: RunPicture | None) -> list[Block]:
    """Steps and machine over time."""
    if picture is None:
        return []
    parts: list[str] = list(picture.levels[0].parts_us)
    words = {**{part: PART_WORDS.get(part, part) for part in parts}, **_WORDS}
    waiting = frozenset(str(part) for part in WAITING_PARTS)
    story = Story(picture, words, waiting, _tabulate(picture))
    notes = []
    if picture.kept_frac < 1:
        share = percent(picture.kept_frac)
        notes.append(Statement(f"Excerpts of the run, {share} of its time, one after the other."))
    if picture.moments_left_out:
        more = picture.moments_left_out
        notes.append(Statement(f"{more} more moments of the same kinds are not marked."))
    title = f"The run over time: {picture.which}" if picture.which else "The run over time"
    return [Heading(title, "Over time"), story, *notes]


_WORDS = {
    "workers": "workers",
    "device": "device",
    "cores": "CPU cores",
    "memory": "memory",
    "storage": "storage",
    "network": "network",
    "running": "on a core",
    "for core": "waiting for a core",
    "blocked": "blocked otherwise",
    "on files": "blocked on files",
    "on a socket": "on a socket",
    "asleep": "asleep",
    "busy": "reported as busy",
    "sms": "SMs active",
    "tensor": "tensor cores",
    "job": "this job",
    "others": "other processes",
    "held": "this job's processes, shared pages counted in each",
    "free": "free on the host",
    "read": "read",
    "written": "written",
    "computing": "computing",
    "communicating": "communicating",
    "copying": "copying",
    "received": "received",
    "sent": "sent",
    "epoch": "epoch begins",
    "fix": "--fix changes a setting",
    "throttled": "clock held down",
}
"""Of lanes, their series, and moments."""


def _tabulate(picture: RunPicture) -> Table:
    """The coarsest level in a few stretches."""
    level = picture.levels[-1]
    stride = max(1, -(-len(level.steps) // _STRETCHES))
    starts = [0, *accumulate(level.length_us)]
    rows = []
    for first in range(0, len(level.steps), stride):
        row = _row_of(level, range(first, min(first + stride, len(level.steps))))
        if row:
            at = duration(picture.start_s + starts[first] / 1e6)
            rows.append((at, *row))
    header = ("from", f"{picture.per}s", "mean", "longest", "waiting", "most of it")
    return Table(header, tuple(rows))


def _row_of(level: StepLevel, buckets: range) -> tuple[str, ...]:
    steps = sum(level.steps[at] for at in buckets)
    if not steps:
        return ()
    sums = {part: sum(values[at] for at in buckets) for part, values in level.parts_us.items()}
    whole = sum(sums.values()) or 1
    most = max(sums, key=lambda part: sums[part])
    waited = sum(value for part, value in sums.items() if part in WAITING_PARTS)
    length = sum(level.length_us[at] for at in buckets)
    return (
        number(steps),
        duration(length / steps / 1e6),
        duration(max(level.most_us[at] for at in buckets) / 1e6),
        percent(waited / whole),
        PART_WORDS.get(most, most),
    )


def judged_rank(diagnosis: Diagnosis) -> str:
    """Whose time and settings a recording of several ranks is judged by; empty if of one."""
    ranks = diagnosis.collectives
    if diagnosis.trace is not None or ranks.ranks < 2:
        return ""
    return "the first rank that makes no other wait" if ranks.culprits else "the first rank"


def is_waiting(part: str, diagnosis: Diagnosis) -> bool:
    """Whether training waits in it: at collectives if ranks wait longer than they exchange."""
    ranks = diagnosis.collectives
    if part == "collectives" and ranks.wait_share is not None:
        return ranks.wait_share > (ranks.exchange_share or 0.0)
    return part in WAITING_PARTS


def link_ranks(diagnosis: Diagnosis) -> list[Block]:
    """Who makes the others wait, and why."""
    culprits = diagnosis.collectives.culprits
    if not culprits:
        return []
    others = max(1, diagnosis.collectives.ranks - 1)
    links = tuple(_link(late, place, others) for place, late in enumerate(culprits))
    return [Heading("Which rank makes the others wait", "Ranks"), Chain(links)]


def _link(late: LateRank, place: int, others: int) -> Link:
    path = f"collectives/culprits/{place}"
    counted = f"last in {number(late.late_count)} of {number(late.of)}"
    return Link(
        cause=late.because,
        rank=Figure(counted, f"rank {late.rank}", f"{path}/rank", late.rank),
        effect=Figure(
            "the other waits" if others == 1 else f"the {others} others wait, added up",
            duration(late.caused_wait_seconds),
            f"{path}/caused_wait_seconds",
            late.caused_wait_seconds,
        ),
    )


def offer_sliders(
    grid: ForecastGrid | Missing | None, recommended: Recommendation | None, name: str
) -> list[Block]:
    """What-if by hand."""
    if grid is None:
        return []
    title = Heading("What if", "What if")
    if isinstance(grid, Missing):
        return [title, Statement(f"No prediction: {grid.reason.rstrip('.')}.")]
    table = Table(("setting", "value", "speedup", "then the limit is"), _list_singles(grid))
    turned = tuple(_slider(axis) for axis in grid.axes)
    command = f"fuelline whatif {shlex.quote(name)}"
    return [
        title,
        Statement(_EXPLAINED),
        Sliders(grid, turned, table, _presets(grid, recommended), command),
    ]


def _presets(
    grid: ForecastGrid, recommended: Recommendation | None
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """As recorded, and as recommended if the grid has that."""
    now = tuple(axis.now for axis in grid.axes)
    found = [("As recorded", now)]
    settings = [] if recommended is None else recommended.settings
    wanted = {_KNOB_OF[each.knob]: each.value for each in settings if each.knob in _KNOB_OF}
    places = tuple(
        axis.values.index(wanted[axis.knob])
        if axis.knob in wanted and wanted[axis.knob] in axis.values
        else axis.now
        for axis in grid.axes
    )
    if places != now:
        found.append(("Recommended", places))
    return tuple(found)


_KNOB_OF: dict[KnobName, GridKnob] = {"num_workers": "workers", "prefetch_factor": "prefetch"}
"""Settings of the loader that a slider turns."""
_EXPLAINED = (
    "Predicted by the pipeline model of this recording, with a 90 % interval: the answers of "
    "`fuelline whatif`."
)


def _list_singles(grid: ForecastGrid) -> tuple[tuple[str, ...], ...]:
    """One setting changed, all others as recorded."""
    rows = []
    for axis in grid.axes:
        slider = _slider(axis)
        for place, shown in enumerate(slider.shown):
            answer = grid.find({axis.knob: place})
            if place == axis.now or answer is None:
                continue
            if isinstance(answer.speedup, Missing):
                rows.append((slider.name, shown, "cannot tell", ""))
            else:
                rows.append((slider.name, shown, times(answer.speedup), answer.limit_words))
    return tuple(rows)


_KNOBS: dict[GridKnob, tuple[str, str]] = {
    "workers": ("Loader workers", "--workers"),
    "prefetch": ("Batches prefetched by each worker", "--prefetch"),
    "batch_size": ("Batch size", "--batch-size"),
    "storage": ("Storage", "--storage"),
    "cores": ("CPU cores", "--cores"),
    "chip_factor": ("Accelerator speed", "--chip"),
}
"""What a setting is called, and the option of `whatif` for it."""
_STORAGES = {"nvme": "local NVMe disk", "warm": "data in memory"}


def _slider(axis: ForecastAxis) -> Slider:
    name, option = _KNOBS[axis.knob]
    factor = "x" if axis.knob == "chip_factor" else ""
    return Slider(
        name=name,
        option=option,
        shown=tuple(_value_words(each) + factor for each in axis.values),
        typed=tuple(each if isinstance(each, str) else f"{each:g}{factor}" for each in axis.values),
        now=axis.now,
    )


def _value_words(value: float | str) -> str:
    return _STORAGES.get(value, value) if isinstance(value, str) else number(value)
