"""Growth of cumulative counters inside the window: of the host, of the job's processes.

Counters grow all the time; where only excerpts of a run are kept, so is that share of the growth.

Also here: what cores the job may use, what it got, and who had the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.facts import CoreFacts
from fuelline.schema.readings import Missing, Signal
from fuelline.signals.statistics import total

if TYPE_CHECKING:
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import Span, StepSegments


_ALL_THREADS = pl.lit(value=True)
_FEW_READINGS = 4
"""Fewer have no middle: the mean is all that can be said."""


def growth(timeline: Timeline, span: Span, name: str) -> float | None:
    """How much a host counter grew over the window; None if its source was not read twice.

    Only changes were written down, so the value at a moment is the last one before it, and a source
    was read when any of its names changed. The growth between readings stands for the window.
    """
    rows, looks = _readings(timeline, name)
    first_ns, last_ns = _looked(looks, span)
    if last_ns <= first_ns:
        return None
    grown = _value_at(rows, last_ns) - _value_at(rows, first_ns)
    return max(0.0, grown) * timeline.kept_frac * span.wall_ns / (last_ns - first_ns)


def usual_rate(timeline: Timeline, span: Span, name: str) -> float | None:
    """Per second, in the middle one of the times between two readings inside the window.

    A pause of the job, or of the machine, lowers the mean over the window and not this.
    """
    rates = list_rates(timeline, span, name)["per_s"]
    if rates.len() < _FEW_READINGS - 1:
        return None
    return float(rates.median()) * timeline.kept_frac  # type: ignore[arg-type]


def list_rates(timeline: Timeline, span: Span, name: str) -> pl.DataFrame:
    """Growth per second between two readings inside the window: since_ns, until_ns, per_s."""
    rows, looks = _readings(timeline, name)
    inside = looks.filter((looks >= span.start_ns) & (looks <= span.end_ns))
    values = pl.DataFrame({"until_ns": inside}).join_asof(
        rows, left_on="until_ns", right_on="at_ns"
    )
    since = pl.col("until_ns").shift(1)
    grown = pl.col("value").diff() / (pl.col("until_ns") - since) * 1e9
    return values.select(since.alias("since_ns"), "until_ns", per_s=grown).drop_nulls()


def _readings(timeline: Timeline, name: str) -> tuple[pl.DataFrame, pl.Series]:
    """The values that were written down, and when they were looked at."""
    host = timeline.table("host")
    source = name.partition(".")[0]
    looks = host.filter(pl.col("name").str.starts_with(f"{source}."))["at_ns"].unique().sort()
    rows = host.filter(pl.col("name") == name).sort("at_ns")
    return rows, looks.filter(looks >= rows["at_ns"].min()) if rows.height else looks.clear()


def _looked(looks: pl.Series, span: Span) -> tuple[int, int]:
    """First and last reading inside the window; with fewer than two, also the last before it."""
    inside = looks.filter((looks >= span.start_ns) & (looks <= span.end_ns))
    if inside.len() < 2:
        before = looks.filter(looks < span.start_ns).tail(1)
        inside = pl.concat([before, inside])
    return (int(inside[0]), int(inside[-1])) if inside.len() else (0, 0)


def _value_at(rows: pl.DataFrame, at_ns: int) -> float:
    return float(rows.filter(pl.col("at_ns") <= at_ns)["value"][-1])


def latest(timeline: Timeline, name: str) -> float | None:
    """The last value of a host gauge; None if it was never read."""
    rows = timeline.table("host").filter(pl.col("name") == name).sort("at_ns")
    return float(rows["value"][-1]) if rows.height else None


def usual(timeline: Timeline, span: Span, name: str) -> float | None:
    """The middle one of a gauge's values inside the window; None if there is none."""
    rows = timeline.table("host").filter(
        (pl.col("name") == name) & pl.col("at_ns").is_between(span.start_ns, span.end_ns)
    )
    return float(rows["value"].median()) if rows.height else None  # type: ignore[arg-type]


def process_growth(timeline: Timeline, span: Span, column: str) -> float | None:
    """How much a counter grew over the window in all processes; None if the kernel refused it.

    Between two samples it grows evenly: a sample a second before the window is not the window's. A
    process that was first seen inside it had its counters at zero when it began; one that lived
    shorter than a sample is not seen. The growth until the last sample stands for the window.
    """
    rows = timeline.table("processes").filter(pl.col(column) >= 0)
    first_ns, last_ns = rows["at_ns"].min(), rows["at_ns"].max()
    if not isinstance(first_ns, int) or not isinstance(last_ns, int):
        return None
    if last_ns <= span.start_ns or first_ns >= span.end_ns:
        return None
    until_ns = min(last_ns, span.end_ns)
    grown = (
        _counters_at(rows, column, (span.start_ns, until_ns))
        .group_by("pid")
        .agg(pl.col(column).last() - pl.col(column).first())
    )
    of_window = float(grown[column].sum()) * timeline.kept_frac
    return of_window * span.wall_ns / (until_ns - span.start_ns)


def _counters_at(rows: pl.DataFrame, column: str, times_ns: tuple[int, int]) -> pl.DataFrame:
    """The counter of each pid at both times: zero before its first sample."""
    known = _with_unchanged(
        rows.sort("at_ns").select("pid", "at_ns", pl.col(column).cast(pl.Float64).alias("value"))
    )
    asked = known.select(pl.col("pid").unique()).join(
        pl.DataFrame({"at_ns": times_ns}, schema={"at_ns": pl.Int64}), how="cross"
    )
    both = pl.concat(
        [
            known.with_columns(is_asked=pl.lit(value=False)),
            asked.with_columns(value=pl.lit(None, pl.Float64), is_asked=pl.lit(value=True)),
        ]
    ).sort("pid", "at_ns", "is_asked")
    filled = pl.col("value").interpolate_by("at_ns").forward_fill().fill_null(0.0).over("pid")
    return both.select("pid", filled.alias(column), "is_asked").filter("is_asked")


def _with_unchanged(rows: pl.DataFrame) -> pl.DataFrame:
    """With the last look before each sample: what was not written down then had not changed."""
    looks = (
        rows.select("at_ns").unique().sort("at_ns").with_columns(look_ns=pl.col("at_ns").shift(1))
    )
    unchanged = (
        rows.join(looks, on="at_ns")
        .sort("at_ns")
        .with_columns(
            value=pl.col("value").shift(1).over("pid"), own_ns=pl.col("at_ns").shift(1).over("pid")
        )
        .filter(pl.col("look_ns") > pl.col("own_ns"))
        .select("pid", at_ns="look_ns", value="value")
    )
    return pl.concat([rows, unchanged])


def thread_growth(timeline: Timeline, span: Span, tid: int) -> tuple[float, float] | None:
    """Nanoseconds that a thread of the trainer's process ran and that it waited for a core.

    None if its clocks were not read twice inside the window.
    """
    clocks = _clocks(timeline, span).filter((pl.col("pid") == span.pid) & (pl.col("tid") == tid))
    if clocks.height < 2:
        return None
    grown = clocks.select(pl.col("oncpu_ns", "runq_ns").max() - pl.col("oncpu_ns", "runq_ns").min())
    oncpu, queued = grown.row(0)
    return float(oncpu) * timeline.kept_frac, float(queued) * timeline.kept_frac


def queued_growth(timeline: Timeline, span: Span, where: pl.Expr = _ALL_THREADS) -> float | None:
    """Nanoseconds that threads of the job waited for a core; None if no clock was read twice.

    Each thread's growth between its own readings stands for the window.
    """
    clocks = (
        _clocks(timeline, span)
        .filter(where)
        .group_by("pid", "tid")
        .agg(
            grown=pl.col("runq_ns").max() - pl.col("runq_ns").min(),
            seen_ns=pl.col("at_ns").max() - pl.col("at_ns").min(),
        )
        .filter(pl.col("seen_ns") > 0)
    )
    if not clocks.height:
        return None
    grown_ns = clocks["grown"] * (span.wall_ns / clocks["seen_ns"])
    return float(grown_ns.sum()) * timeline.kept_frac


def _clocks(timeline: Timeline, span: Span) -> pl.DataFrame:
    return timeline.table("clocks").filter(pl.col("at_ns").is_between(span.start_ns, span.end_ns))


_UNSEEN = Missing(reason="the observer left no counters for the window")


def measure_cores(timeline: Timeline, segments: StepSegments, ranks: int) -> CoreFacts:
    """Cores allowed, used, idle and taken by others, on average over the window."""
    limits = timeline.limits_within(segments.start_ns, segments.end_ns)
    used = _job_cores(timeline, segments, None if limits is None else float(limits.host_cpus))
    wall_ns = segments.wall_ns
    busy = growth(timeline, segments, "cpu.busy_ns")
    idle = growth(timeline, segments, "cpu.idle_ns")
    periods = growth(timeline, segments, "cgroup.cpu.periods")
    throttled = growth(timeline, segments, "cgroup.cpu.throttled_periods")
    return CoreFacts(
        allowed=_UNSEEN
        if limits is None
        else total(
            min(float(limits.cpus_allowed), limits.quota_cores or float("inf")), "cores", "limits"
        ),
        host=_UNSEEN if limits is None else total(limits.host_cpus, "cores", "limits"),
        used=used,
        idle=_UNSEEN if idle is None else total(idle / wall_ns, "cores", "cpu.idle_ns"),
        others=_others(used, busy, wall_ns),
        throttled_share=Missing(reason="no CPU quota counter")
        if not periods or throttled is None
        else total(min(1.0, throttled / periods), "frac", "cgroup.cpu.throttled_periods"),
        ranks=ranks,
    )


def _job_cores(timeline: Timeline, segments: StepSegments, host_cores: float | None) -> Signal:
    """Never more than there are: counters go by ticks of 10 ms, and a short window has few."""
    cpu_ns = process_growth(timeline, segments, "cpu_ns")
    if cpu_ns is None:
        return _UNSEEN
    cores = cpu_ns / segments.wall_ns
    if host_cores is not None:
        cores = min(cores, host_cores)
    return total(cores, "cores", "processes.cpu_ns")


def _others(used: Signal, busy_ns: float | None, wall_ns: int) -> Signal:
    if isinstance(used, Missing) or busy_ns is None:
        return _UNSEEN
    return total(max(0.0, busy_ns / wall_ns - used.value), "cores", "cpu.busy_ns minus the job's")
