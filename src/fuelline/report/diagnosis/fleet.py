"""What waiting costs over many runs, for people: the sum, its causes, and where to begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import (
    Block,
    Chart,
    Document,
    Figure,
    Heading,
    Item,
    Items,
    Series,
    Statement,
    Summary,
    Table,
)
from fuelline.schema.diagnosis.fleet import START_UP
from fuelline.schema.units import count, duration, number, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuelline.schema.diagnosis.fleet import (
        FleetGroup,
        FleetHost,
        FleetJob,
        FleetLosses,
        FleetRegression,
        FleetRun,
        GaugeKind,
        Grouping,
    )

_MOST_GROUPS = 20
_MOST_NAMED = 5
_BY: dict[Grouping, str] = {
    "cause": "What accelerators waited for",
    "user": "By user",
    "job": "By job",
    "host": "By host",
    "chip": "By chip",
}
_GAUGE_WORDS: dict[GaugeKind, str] = {
    "read latency": "a read takes {times:.1f} times as long",
    "read rate": "reads are {times:.1f} times slower",
    "network rate": "the network between ranks is {times:.1f} times slower",
    "link width": "the link to an accelerator is {times:.1f} times narrower",
}
_NO_CHIP = "no accelerator"


def write_fleet(answer: FleetLosses) -> Document:
    """The whole page."""
    if not answer.runs:
        return Document((Statement(_say_empty(answer)), *_note_skipped(answer)))
    return Document(
        (
            _summarise(answer),
            *_list_groups(answer),
            *_list_jobs(answer),
            *_list_weeks(answer),
            *_list_slower(answer),
            *_list_hosts(answer),
            *_note_prices(answer),
            *_note_skipped(answer),
            Statement(_propose_next(answer), is_whole=True),
        )
    )


def write_epilog(run: FleetRun, usd_per_hour: float | None) -> str:
    """One line of one run, for whoever started it: a batch system's comment, a pod's last words."""
    on = f" on {count(run.devices, run.chip)}" if run.chip else ""
    lost_s = min(sum(each.lost_seconds for each in run.causes), run.seconds)
    share = percent(lost_s / run.seconds) if run.seconds else "0 %"
    words = f"{run.job}{on}, {duration(run.seconds)}: {share} lost"
    if run.causes:
        worst = max(run.causes, key=lambda each: each.lost_seconds)
        words += f", most to {worst.title}" if worst.code == START_UP else f"; {run.title}"
    if usd_per_hour is not None:
        words += f"; {_usd(lost_s * run.devices / 3600 * usd_per_hour)}"
    if run.advice:
        gain = "" if run.gain is None else f" ({run.gain:.2f}x)"
        words += f"; try {run.advice}{gain}"
    return f"fuelline: {words}"


def _say_empty(answer: FleetLosses) -> str:
    return (
        f"No run in {answer.store}{_since(answer)}. `fuelline run --store {answer.store} train.py` "
        "leaves one there; `fuelline fleet STORE --add RUN` adds one that was recorded before."
    )


def _since(answer: FleetLosses) -> str:
    return "" if answer.since_s is None else " since then"


def _summarise(answer: FleetLosses) -> Summary:
    share = answer.lost_hours / answer.device_hours if answer.device_hours else 0.0
    figures = [
        Figure("held", _held(answer.device_hours), "device_hours", answer.device_hours),
        Figure("lost", _held(answer.lost_hours), "lost_hours", answer.lost_hours),
    ]
    if answer.lost_usd is not None:
        figures.append(Figure("lost", _usd(answer.lost_usd), "lost_usd", answer.lost_usd))
    money = f", {_usd(answer.lost_usd)}" if answer.lost_usd is not None else ""
    energy = (
        f" At least {number(answer.lost_joules / 3.6e6)} kWh were drawn meanwhile."
        if answer.lost_joules
        else ""
    )
    return Summary(
        title=f"{answer.store}: {count(answer.runs, 'run')}",
        sentence=(
            f"Accelerators were held for {_held(answer.device_hours)} and waited for "
            f"{percent(share)} of that: {_held(answer.lost_hours)}{money}.{energy}"
        ),
        alarm=share >= 0.1,
        figures=tuple(figures),
    )


def _list_groups(answer: FleetLosses) -> Iterator[Block]:
    if not answer.groups:
        return
    is_cause = answer.by == "cause"
    yield Heading(_BY[answer.by])
    shown = answer.groups[:_MOST_GROUPS]
    has_usd = any(each.lost_usd is not None for each in shown)
    header = ("cause" if is_cause else answer.by, "runs", "held", "lost", "of all lost")
    header = (*header, *(("lost USD",) if has_usd else ()))
    rows = tuple(_group_row(each, answer, has_usd=has_usd) for each in shown)
    if is_cause:
        yield Table(header, rows, gives_way=0)
    else:
        rows = tuple((*row, group.title) for row, group in zip(rows, shown, strict=True))
        yield Table((*header, "most to"), rows, gives_way=len(header))
    if len(answer.groups) > len(shown):
        yield Statement(f"{len(answer.groups) - len(shown)} more: --json lists them all.")


def _group_row(group: FleetGroup, answer: FleetLosses, *, has_usd: bool) -> tuple[str, ...]:
    name = group.name or _NO_CHIP
    if answer.by == "cause" and group.name != START_UP:
        name = f"{group.name} {group.title}"
    share = group.lost_hours / answer.lost_hours if answer.lost_hours else 0.0
    usd = () if not has_usd else ("-" if group.lost_usd is None else f"{group.lost_usd:,.2f}",)
    return (
        name,
        f"{group.runs:,}",
        _held(group.device_hours),
        _held(group.lost_hours),
        percent(share),
        *usd,
    )


def _list_jobs(answer: FleetLosses) -> Iterator[Block]:
    if not answer.jobs:
        return
    yield Heading("Jobs that would gain most", "where to begin")
    yield Items(tuple(_job_item(each) for each in answer.jobs), numbered=True)


def _job_item(job: FleetJob) -> Item:
    chip = job.chip or _NO_CHIP
    saved = _held(job.saved_hours) + ("" if job.saved_usd is None else f", {_usd(job.saved_usd)}")
    text = f"{job.job} of {job.user} on {chip}: {'at most ' if job.is_bound else ''}{saved}"
    detail = (
        f"{count(job.runs, 'run')}, {_held(job.lost_hours)} of {_held(job.device_hours)} lost, "
        f"most to {job.title or 'nothing that was named'}"
    )
    change = f"{job.advice}" + ("" if job.gain is None else f": {job.gain:.2f}x")
    return Item(
        text, (detail, *((f"change: {change}",) if job.advice else ()), f"see {job.newest}")
    )


def _list_weeks(answer: FleetLosses) -> Iterator[Block]:
    if len(answer.weeks) < 2:
        return
    yield Heading("Week by week")
    shares = [
        each.lost_hours / each.device_hours if each.device_hours else 0.0 for each in answer.weeks
    ]
    points = tuple((float(at), 100 * share) for at, share in enumerate(shares))
    yield Chart(
        title="lost, % of the hours held",
        x_label=f"weeks since {answer.weeks[0].starts}",
        y_label="%",
        series=(Series("lost", points),),
    )
    first, last = answer.weeks[0], answer.weeks[-1]
    yield Statement(
        f"From {percent(shares[0])} in the week of {first.starts} ({count(first.runs, 'run')}) to "
        f"{percent(shares[-1])} in the week of {last.starts} ({count(last.runs, 'run')})."
    )


def _list_slower(answer: FleetLosses) -> Iterator[Block]:
    if answer.regressions:
        yield Heading("Slower than the same job before")
        yield Items(tuple(map(_slower_item, answer.regressions)))


def _slower_item(slower: FleetRegression) -> Item:
    expected = f"{count(slower.earlier, 'earlier run')} let one expect at least"
    return Item(
        f"{slower.job} of {slower.user}: {number(slower.samples_per_s)} samples/s, usually "
        f"{number(slower.usual)}",
        (f"{slower.run}; {expected} {number(slower.lowest_usual)}",),
    )


def _list_hosts(answer: FleetLosses) -> Iterator[Block]:
    if answer.hosts:
        yield Heading("Hosts that are worse than their peers")
        yield Items(tuple(map(_host_item, answer.hosts)))


def _host_item(host: FleetHost) -> Item:
    words = _GAUGE_WORDS[host.kind].format(times=host.times_worse)
    where = f" ({host.place})" if host.place else ""
    peers = f"that also ran on {count(host.peers, 'other host')}"
    detail = f"at least {host.low:.1f} times, by {count(host.runs, 'run')} of jobs {peers}"
    return Item(f"{host.host}: {words}{where}", (detail,))


def _note_prices(answer: FleetLosses) -> Iterator[Block]:
    if answer.unpriced:
        names = ", ".join(name or _NO_CHIP for name in answer.unpriced[:_MOST_NAMED])
        yield Statement(
            f"No price was given for {names}, so money is stated only where all hours have one. "
            "`--price h100=2.5,a100=1.6` takes several; a number alone is for all chips."
        )


def _note_skipped(answer: FleetLosses) -> Iterator[Block]:
    if answer.skipped:
        yield Statement(
            f"{count(len(answer.skipped), 'file')} of the store could not be read and count for "
            "nothing:"
        )
        yield Items(tuple(Item(each) for each in answer.skipped[:_MOST_NAMED]))


def _propose_next(answer: FleetLosses) -> str:
    other = "job" if answer.by == "cause" else "cause"
    return f"Next: fuelline fleet {answer.store} --by {other}"


def _held(hours: float) -> str:
    """Of accelerators: hours are never turned into days, which would be read as time passed."""
    return f"{number(hours)} h" if hours >= 1 else duration(hours * 3600)


def _usd(value: float) -> str:
    return f"{value:,.2f} USD"
