"""What workers, devices and the machine did over time, in bins of equal length.

Fetches are spread over the bins that they cover; counters grow evenly between two readings. A bin
in which nothing was read holds None: a gap in the drawing, not a zero.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.picture import Lane, Moment
from fuelline.signals.recorded.counters import list_rates
from fuelline.timeline import events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

_THROTTLES = ("throttle.power_frac", "throttle.thermal_frac", "throttle.hardware_frac")
_THROTTLED = 0.05
"""Of a bin: less is the ordinary flicker at the power limit."""
_DEVICE_SHARES = (
    ("util.gpu_frac", "busy"),
    ("gpm.sm_frac", "sms"),
    ("gpm.tensor_frac", "tensor"),
)
_LOOPBACK = "net.lo."


def list_lanes(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, bins: int
) -> list[Lane]:
    """Those for which something was recorded, from the workers outwards."""
    found = (
        _workers(timeline, trainer, segments, bins),
        _devices(timeline, segments, bins),
        _cores(timeline, segments, bins),
        _memory(timeline, segments, bins),
        _traffic(timeline, segments, bins, "storage"),
        _traffic(timeline, segments, bins, "network"),
    )
    return [lane for lane in found if lane is not None and lane.series]


def find_throttled(timeline: Timeline, segments: StepSegments, bins: int) -> list[Moment]:
    """When a device's clock was held down; neighbouring bins are one moment."""
    rows = _within(timeline.table("devices"), segments).filter(pl.col("name").is_in(_THROTTLES))
    means = _mean(rows.group_by("at_ns").agg(pl.col("value").max()), segments, bins)
    moments: list[Moment] = []
    width = segments.wall_ns / bins / 1e9
    begin_s = (segments.start_ns - timeline.run.started_ns) / 1e9
    for number, share in enumerate(means):
        if share is None or share < _THROTTLED:
            continue
        at_s = begin_s + number * width
        if moments and at_s - moments[-1].at_s - moments[-1].seconds < width / 2:
            last = moments.pop()
            moments.append(Moment(kind="throttled", at_s=last.at_s, seconds=last.seconds + width))
        else:
            moments.append(Moment(kind="throttled", at_s=at_s, seconds=width))
    return moments


def _workers(
    timeline: Timeline, trainer: Trainer, segments: StepSegments, bins: int
) -> Lane | None:
    """All workers together: on a core, waiting for one, blocked on what; the rest has no work."""
    pids = pl.col("pid").is_in(list(trainer.worker_pids) or [trainer.pid])
    inside = (pl.col("start_ns") < segments.end_ns) & (
        pl.col("start_ns") + pl.col("dur_ns") > segments.start_ns
    )
    fetched = events.fetches(timeline, pids & inside).filter(pl.col("dur_ns") > 0)
    if not fetched.height:
        return None
    dur = pl.col("dur_ns")
    on_core = pl.col("cpu_ns").clip(0, None).clip(None, dur)
    queued = pl.col("runq_ns").clip(0, None).clip(None, dur - on_core)
    parts = {"running": on_core, "for core": queued, "blocked": dur - on_core - queued}
    spread = _spread(fetched.with_columns(**parts), tuple(parts), segments, bins)
    alive = _count_alive(fetched, segments, bins)
    whole_ns = [segments.wall_ns / bins * max(1, count) for count in alive]
    shares = {
        part: [
            min(1.0, ns / most) for ns, most in zip(spread[part].to_list(), whole_ns, strict=True)
        ]
        for part in parts
    }
    blocked = shares.pop("blocked")
    for state, fracs in _blocked_on(timeline, pids, segments, bins).items():
        shares[state] = [share * frac for share, frac in zip(blocked, fracs, strict=True)]
    return Lane(
        name="workers",
        unit="frac",
        series={part: [_rounded(each) for each in values] for part, values in shares.items()},
        is_stacked=True,
        most=float(max(alive)),
    )


_BLOCKED_ON = {
    "read": "on files",
    "metadata": "on files",
    "fault": "on files",
    "write": "on files",
    "socket": "on a socket",
    "sleep": "asleep",
}
"""What a state of the observer's samples means to a lane; all others are `blocked`. A worker's pipe
is its queue, where it has no work."""
_NOT_BLOCKED = ("running", "pipe")


def _blocked_on(
    timeline: Timeline, pids: pl.Expr, segments: StepSegments, bins: int
) -> dict[str, list[float]]:
    """Of blocked time: what for, by the observer's samples; where there are none, as on the whole.

    Sampled once in a while, so that a bin has few: the shares of a bin and its neighbours count.
    """
    seen = (
        _within(timeline.table("states").rename({"window_ns": "at_ns"}), segments)
        .filter(pids & ~pl.col("state").is_in(_NOT_BLOCKED))
        .with_columns(
            at=_bin(segments, bins),
            kind=pl.col("state").replace_strict(
                _BLOCKED_ON, default="blocked", return_dtype=pl.String
            ),
        )
    )
    whole = int(seen["count"].sum())
    if not whole:
        return {"blocked": [1.0] * bins}
    counts: dict[str, list[int]] = {}
    for at, kind, count in seen.group_by("at", "kind").agg(pl.col("count").sum()).iter_rows():
        counts.setdefault(kind, [0] * bins)[at] += count
    near = {
        kind: [sum(each[max(0, at - 1) : at + 2]) for at in range(bins)]
        for kind, each in sorted(counts.items())
    }
    totals = [sum(each[at] for each in near.values()) for at in range(bins)]
    return {
        kind: [
            each[at] / totals[at] if totals[at] else sum(counts[kind]) / whole for at in range(bins)
        ]
        for kind, each in near.items()
    }


def _count_alive(fetched: pl.DataFrame, segments: StepSegments, bins: int) -> list[int]:
    """Workers between their first fetch and their last, a bin each."""
    lives = fetched.group_by("pid", "tid").agg(
        pl.col("start_ns").min(), (pl.col("start_ns") + pl.col("dur_ns")).max().alias("end_ns")
    )
    width = segments.wall_ns / bins
    first = ((lives["start_ns"] - segments.start_ns) / width).floor().clip(0, bins - 1)
    last = ((lives["end_ns"] - segments.start_ns) / width).floor().clip(0, bins - 1)
    changes = [0] * (bins + 1)
    for begin, end in zip(first.cast(pl.Int64), last.cast(pl.Int64), strict=True):
        changes[begin] += 1
        changes[end + 1] -= 1
    return list(accumulate(changes[:bins]))


def _spread(
    rows: pl.DataFrame, columns: tuple[str, ...], segments: StepSegments, bins: int
) -> pl.DataFrame:
    """Each row's amounts over the bins that its time covers: a row per bin."""
    width = segments.wall_ns / bins
    start = (pl.col("start_ns") - segments.start_ns) / width
    end = (pl.col("start_ns") + pl.col("dur_ns") - segments.start_ns) / width
    placed = rows.select(
        *columns, start=start, end=end, first=start.floor().clip(0, bins - 1).cast(pl.Int64),
        last=end.floor().clip(0, bins - 1).cast(pl.Int64),
    ).with_columns(bin=pl.int_ranges("first", pl.col("last") + 1))  # fmt: skip
    covered = placed.explode("bin").with_columns(
        share=(
            pl.min_horizontal(pl.col("end"), pl.col("bin") + 1)
            - pl.max_horizontal(pl.col("start"), pl.col("bin"))
        ).clip(0, None)
        / (pl.col("end") - pl.col("start"))
    )
    sums = covered.group_by("bin").agg(
        *((pl.col(name) * pl.col("share")).sum() for name in columns)
    )
    return (
        pl.DataFrame({"bin": range(bins)}, schema={"bin": pl.Int64})
        .join(sums, on="bin", how="left")
        .fill_null(0)
        .sort("bin")
    )


def _devices(timeline: Timeline, segments: StepSegments, bins: int) -> Lane | None:
    """Means over the job's devices."""
    rows = _within(timeline.table("devices"), segments)
    ours = rows.filter((pl.col("name") == "job.frac") & (pl.col("value") > 0))["device"].unique()
    if ours.len():
        rows = rows.filter(pl.col("device").is_in(ours.implode()))
    series = {
        words: _mean(rows.filter(pl.col("name") == name), segments, bins)
        for name, words in _DEVICE_SHARES
    }
    known = {
        words: means for words, means in series.items() if any(each is not None for each in means)
    }
    return Lane(name="device", unit="frac", series=known, most=1.0) if known else None


def _cores(timeline: Timeline, segments: StepSegments, bins: int) -> Lane | None:
    """The job's, and everybody's."""
    series = {}
    for name, words in (("job.cpu_ns", "job"), ("others.cpu_ns", "others")):
        rates = list_rates(timeline, segments, name)
        if rates.height:
            series[words] = _rates_in_bins([rates], segments, bins, 1e-9)
    limits = timeline.limits_within(segments.start_ns, segments.end_ns)
    allowed = None
    if limits is not None:
        allowed = min(float(limits.cpus_allowed), limits.quota_cores or float("inf"))
    return Lane(name="cores", unit="cores", series=series, most=allowed) if series else None


def _memory(timeline: Timeline, segments: StepSegments, bins: int) -> Lane | None:
    """What the job's processes hold, and what the machine has left."""
    rows = _within(timeline.table("processes"), segments).filter(pl.col("rss_bytes") >= 0)
    series: dict[str, list[float | None]] = {}
    if rows.height:
        series["held"] = _held(rows, segments, bins)
    free = _within(timeline.table("host"), segments).filter(
        pl.col("name") == "memory.available_bytes"
    )
    if free.height:
        series["free"] = _mean(free, segments, bins)
    return Lane(name="memory", unit="bytes", series=series) if series else None


def _held(rows: pl.DataFrame, segments: StepSegments, bins: int) -> list[float | None]:
    """The sum over processes, each from its first sample to its last."""
    held = (
        rows.with_columns(at=_bin(segments, bins))
        .group_by("at", "pid")
        .agg(pl.col("rss_bytes").last())
    )
    lives = held.group_by("pid").agg(pl.col("at").min(), until=pl.col("at").max() + 1)
    filled = (
        lives.select("pid", at=pl.int_ranges("at", "until"))
        .explode("at")
        .join(held, on=["at", "pid"], how="left")
        .sort("pid", "at")
        .with_columns(pl.col("rss_bytes").forward_fill().over("pid"))
    )
    sums = dict(filled.group_by("at").agg(pl.col("rss_bytes").sum()).iter_rows())
    return [_rounded(sums[at]) if at in sums else None for at in range(bins)]


_TRAFFIC = {
    "storage": ("disk.", ((".read_bytes", "read"), (".write_bytes", "written"))),
    "network": ("net.", ((".rx_bytes", "received"), (".tx_bytes", "sent"))),
}


def _traffic(timeline: Timeline, segments: StepSegments, bins: int, kind: str) -> Lane | None:
    """Of the whole host: bytes per second of all disks, of all interfaces but the loopback."""
    begin, ends = _TRAFFIC[kind]
    names = timeline.table("host")["name"].unique().sort()
    series = {}
    for end, words in ends:
        own = [
            name
            for name in names
            if name.startswith(begin) and name.endswith(end) and not name.startswith(_LOOPBACK)
        ]
        rates = [each for name in own if (each := list_rates(timeline, segments, name)).height]
        if rates:
            series[words] = _rates_in_bins(rates, segments, bins, 1.0)
    if not series:
        return None
    return Lane(name="storage" if kind == "storage" else "network", unit="bytes/s", series=series)


def _rates_in_bins(
    tables: Sequence[pl.DataFrame], segments: StepSegments, bins: int, unit: float
) -> list[float | None]:
    """The sum over tables of rates between two readings each, a mean per bin."""
    width_s = segments.wall_ns / bins / 1e9
    sums = [0.0] * bins
    for rates in tables:
        spans = rates.select(
            start_ns="since_ns",
            dur_ns=pl.col("until_ns") - pl.col("since_ns"),
            grown=pl.col("per_s") * (pl.col("until_ns") - pl.col("since_ns")) / 1e9,
        )
        grown = _spread(spans, ("grown",), segments, bins)["grown"]
        sums = [before + each for before, each in zip(sums, grown, strict=True)]
    return [_rounded(max(0.0, each) * unit / width_s) for each in sums]


def _within(rows: pl.DataFrame, segments: StepSegments) -> pl.DataFrame:
    return rows.filter(pl.col("at_ns").is_between(segments.start_ns, segments.end_ns))


def _bin(segments: StepSegments, bins: int) -> pl.Expr:
    place = (pl.col("at_ns") - segments.start_ns) * bins // segments.wall_ns
    return place.clip(0, bins - 1).cast(pl.Int64)


def _mean(rows: pl.DataFrame, segments: StepSegments, bins: int) -> list[float | None]:
    """Of a gauge; where it was not read the one before holds."""
    means = rows.with_columns(at=_bin(segments, bins)).group_by("at").agg(pl.col("value").mean())
    filled = (
        pl.DataFrame({"at": range(bins)}, schema={"at": pl.Int64})
        .join(means, on="at", how="left")
        .sort("at")["value"]
        .forward_fill(3)
    )
    return [None if each is None else _rounded(each) for each in filled]


def _rounded(value: float) -> float:
    """Three figures are more than a pixel shows."""
    return float(f"{value:.3g}")
