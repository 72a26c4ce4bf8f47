"""Rows in, the answer out: what waiting costs, by whatever runs have in common, and where to begin.

Everything is a sum or a mean over columns. Devices times seconds is what a run is charged for;
what its causes lost is a part of that, so that no group loses more than it paid for.
"""

from __future__ import annotations

import math
import re
import statistics
from typing import TYPE_CHECKING

import polars as pl

from fuelline import __version__
from fuelline.schema.diagnosis.fleet import (
    EVERY_CHIP,
    LOWER_IS_BETTER,
    FleetGroup,
    FleetHost,
    FleetJob,
    FleetLosses,
    FleetRegression,
    FleetWeek,
    GaugeKind,
    Grouping,
)
from fuelline.schema.student import find_reach

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from fuelline.fleet.shelf import Rows

MOST_JOBS = 10
_HOUR_S = 3600.0
_WEEK_S = 7 * 86400.0
_MONDAY_S = 4 * 86400.0
"""1970 began on a Thursday; its first Monday was the 5th of January."""
_LEAST_EARLIER = 5
"""Runs of a job before one of them may be called slower than usual."""
_ANY_FALSE = 0.01
"""Chance that any job is called slower, or any host worse, without a reason: of hundreds that are
looked at some would be outside of every usual interval."""
_SLOWER = 0.95
"""Of the usual rate; what is lost above that is not worth a line."""
_LEAST_RUNS = 5
"""On a host, before it is compared with others."""
_LEAST_PEERS = 2
_WORSE = 1.3
"""Times; hosts of one model differ by less in what they are sold for."""


_OF_JOB = ("run_id", "hours", "lost_hours", "usd_per_hour", "advice", "gain")
_KEYS: dict[Grouping, str] = {"user": "user", "job": "job", "host": "host", "chip": "chip"}


def reckon(
    rows: Rows, store: str, *, by: Grouping, prices: Mapping[str, float], since_s: float | None
) -> FleetLosses:
    """The whole answer; `prices` are USD an hour by a part of a chip's name, or EVERY_CHIP."""
    frame = _charge(rows.frame, prices)
    causes = _list_causes(frame)
    total = frame.select(pl.col("hours", "lost_hours").sum()).row(0)
    with_power = frame.filter(pl.col("joules").is_not_null() & (pl.col("hours") > 0))
    wasted = _sum(with_power["joules"] * with_power["lost_hours"] / with_power["hours"])
    return FleetLosses(
        fuelline_version=__version__,
        store=store,
        since_s=since_s,
        runs=frame.height,
        device_hours=total[0],
        lost_hours=total[1],
        lost_usd=_sum_priced(frame["lost_usd"], frame["lost_hours"]),
        lost_joules=wasted if with_power.height else None,
        by=by,
        groups=_group_causes(causes) if by == "cause" else _group(frame, causes, _KEYS[by]),
        jobs=_rank_jobs(frame, causes),
        weeks=_list_weeks(frame),
        regressions=list(_find_regressions(frame)),
        hosts=list(_find_slow_hosts(frame)),
        unpriced=_name_unpriced(frame) if prices else [],
        skipped=rows.skipped,
    )


def find_price(chip: str, prices: Mapping[str, float]) -> float | None:
    """Of an hour of a chip: the longest name that its own name holds, `h100` in `NVIDIA H100`."""
    plain = re.sub(r"[^a-z0-9]", "", chip.lower())
    named = [name for name in prices if name != EVERY_CHIP and _plain(name) in plain]
    return prices.get(max(named, key=len, default=EVERY_CHIP))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _charge(frame: pl.DataFrame, prices: Mapping[str, float]) -> pl.DataFrame:
    """Hours paid for, hours lost, and money, run by run."""
    lost_s = pl.col("causes").list.eval(pl.element().struct.field("lost_seconds")).list.sum()
    priced = {chip: find_price(chip, prices) for chip in frame["chip"].unique().drop_nulls()}
    price = pl.col("chip").replace_strict(priced, default=None, return_dtype=pl.Float64)
    hours = pl.col("seconds") * pl.col("devices") / _HOUR_S
    lost = pl.min_horizontal(lost_s.fill_null(0.0), "seconds") * pl.col("devices") / _HOUR_S
    charged = frame.with_columns(hours=hours, lost_hours=lost, usd_per_hour=price)
    return charged.with_columns(lost_usd=pl.col("lost_hours") * pl.col("usd_per_hour")).sort(
        "started_s"
    )


def _list_causes(frame: pl.DataFrame) -> pl.DataFrame:
    """A row a cause and run."""
    lost_s = pl.col("causes").struct.field("lost_seconds").clip(0.0, pl.col("seconds"))
    return (
        frame.select(
            "causes", "job", "user", "host", "chip", "devices", "seconds", "hours", "usd_per_hour"
        )
        .explode("causes", empty_as_null=True, keep_nulls=False)
        .filter(pl.col("causes").is_not_null())
        .with_columns(
            cause=pl.col("causes").struct.field("code"),
            cause_title=pl.col("causes").struct.field("title"),
            lost_hours=lost_s * pl.col("devices") / _HOUR_S,
        )
        .with_columns(lost_usd=pl.col("lost_hours") * pl.col("usd_per_hour"))
    )


def _sum_priced(usd: pl.Series, hours: pl.Series) -> float | None:
    """None if any hour that was lost has no price."""
    is_unpriced = (usd.is_null() & (hours > 0)).any()
    return None if is_unpriced or not len(usd) else float(usd.fill_null(0.0).sum())


def _group_causes(causes: pl.DataFrame) -> list[FleetGroup]:
    charged = causes.select("cause", "cause_title", "hours", "lost_hours", "lost_usd")
    parts = charged.partition_by("cause")
    return _rank(_sum_up(each["cause"][0], each["cause_title"][-1], each) for each in parts)


def _group(frame: pl.DataFrame, causes: pl.DataFrame, key: str) -> list[FleetGroup]:
    worst = _find_worst(causes, [key])
    charged = frame.select(key, "hours", "lost_hours", "lost_usd")
    parts = charged.with_columns(pl.col(key).fill_null("")).partition_by(key)
    return _rank(_sum_up(each[key][0], worst.get((each[key][0],), ""), each) for each in parts)


def _rank(groups: Iterable[FleetGroup]) -> list[FleetGroup]:
    return sorted(groups, key=lambda group: -group.lost_hours)


def _sum_up(name: str, title: str, rows: pl.DataFrame) -> FleetGroup:
    return FleetGroup(
        name=name,
        title=title,
        runs=rows.height,
        device_hours=_sum(rows["hours"]),
        lost_hours=_sum(rows["lost_hours"]),
        lost_usd=_sum_priced(rows["lost_usd"], rows["lost_hours"]),
    )


def _sum(column: pl.Series) -> float:
    return float(column.sum())


def _find_worst(causes: pl.DataFrame, keys: list[str]) -> dict[tuple[Any, ...], str]:
    """The title of the cause that costs most, by group."""
    summed = (
        causes.with_columns(pl.col(keys).fill_null(""))
        .group_by(*keys, "cause")
        .agg(pl.col("lost_hours").sum(), pl.col("cause_title").last())
        .sort("lost_hours", "cause")
        .group_by(*keys, maintain_order=True)
        .agg(pl.col("cause_title").last())
    )
    return {row[:-1]: row[-1] for row in summed.rows()}


def _rank_jobs(frame: pl.DataFrame, causes: pl.DataFrame) -> list[FleetJob]:
    """By what the advice to the newest run would have saved in all of them."""
    keys = ["job", "user", "chip"]
    worst = _find_worst(causes, keys)
    charged = frame.select(*keys, *_OF_JOB).with_columns(pl.col(keys).fill_null(""))
    of_job = [_judge_job(each, worst) for each in charged.partition_by(keys)]
    gaining = [each for each in of_job if each.saved_hours > 0]
    is_priced = all(each.saved_usd is not None for each in gaining)
    return sorted(
        gaining, key=lambda job: -((job.saved_usd or 0.0) if is_priced else job.saved_hours)
    )[:MOST_JOBS]


def _judge_job(runs: pl.DataFrame, worst: Mapping[tuple[Any, ...], str]) -> FleetJob:
    advised = runs.filter(pl.col("advice").fill_null("") != "")
    newest = (advised if advised.height else runs).row(-1, named=True)
    gain = newest["gain"]
    hours, lost = _sum(runs["hours"]), _sum(runs["lost_hours"])
    is_bound = gain is None or not gain > 1
    saved = lost if is_bound else hours * (1 - 1 / gain)
    price = newest["usd_per_hour"]
    return FleetJob(
        job=newest["job"],
        user=newest["user"],
        chip=newest["chip"],
        runs=runs.height,
        device_hours=hours,
        lost_hours=lost,
        title=worst.get((newest["job"], newest["user"], newest["chip"]), ""),
        newest=newest["run_id"],
        advice=newest["advice"] or "",
        gain=None if is_bound else gain,
        saved_hours=saved,
        saved_usd=None if price is None else saved * price,
        is_bound=is_bound,
    )


def _list_weeks(frame: pl.DataFrame) -> list[FleetWeek]:
    week = ((pl.col("started_s") - _MONDAY_S) // _WEEK_S).alias("week")
    summed = (
        frame.group_by(week)
        .agg(pl.len().alias("runs"), pl.col("hours", "lost_hours").sum())
        .sort("week")
        .with_columns(
            starts=pl.from_epoch(
                (pl.col("week") * _WEEK_S + _MONDAY_S).cast(pl.Int64), time_unit="s"
            ).dt.strftime("%Y-%m-%d")
        )
    )
    return [
        FleetWeek(
            starts=row["starts"],
            runs=row["runs"],
            device_hours=row["hours"],
            lost_hours=row["lost_hours"],
        )
        for row in summed.iter_rows(named=True)
    ]


def _find_regressions(frame: pl.DataFrame) -> Iterator[FleetRegression]:
    """The newest run of a job against the range that a further run like the earlier ones is in.

    Rates are compared in logarithms, where twice as fast and half as fast are as far away.
    """
    keys = ["job", "user", "chip", "devices"]
    rated = frame.filter((pl.col("samples_per_s") > 0) & (pl.col("exit_code").fill_null(0) == 0))
    known = rated.select(*keys, "samples_per_s", "run_id").with_columns(pl.col(keys).fill_null(""))
    judged = known.filter(pl.len().over(keys) > _LEAST_EARLIER).partition_by(keys)
    for runs in judged:
        *earlier, now = [math.log(each) for each in runs["samples_per_s"]]
        usual, spread = statistics.fmean(earlier), statistics.stdev(earlier)
        errors = find_reach(len(earlier) - 1, _ANY_FALSE / len(judged))
        reach = errors * spread * math.sqrt(1 + 1 / len(earlier))
        if now < usual - reach and now < usual + math.log(_SLOWER):
            row = runs.row(-1, named=True)
            yield FleetRegression(
                job=row["job"],
                user=row["user"],
                chip=row["chip"],
                run=row["run_id"],
                samples_per_s=row["samples_per_s"],
                usual=math.exp(usual),
                lowest_usual=math.exp(usual - reach),
                earlier=len(earlier),
            )


def _find_slow_hosts(frame: pl.DataFrame) -> Iterator[FleetHost]:
    """Hosts on which the same jobs find something slower than on others.

    A value is divided by the mean of its job over hosts, so that jobs that read more are no fault
    of the host they ran on. Then the mean of a host's runs is compared with that of all others.
    """
    gauges = (
        frame.select("host", "job", "gauges")
        .explode("gauges", empty_as_null=True, keep_nulls=False)
        .filter(pl.col("gauges").is_not_null())
        .unnest("gauges")
        .filter(pl.col("value") > 0)
        .with_columns(badness=pl.col("value").log() * _sign())
    )
    of_job = ["job", "kind", "place"]
    between = gauges.filter(pl.col("host").n_unique().over(of_job) > _LEAST_PEERS)
    relative = between.with_columns(
        badness=pl.col("badness") - pl.col("badness").median().over(of_job)
    )
    parts = relative.partition_by("kind", "place", "host")
    for own in parts:
        host, kind, place = own.select("host", "kind", "place").row(0)
        alike = pl.col("place").eq_missing(place) & (pl.col("kind") == kind)
        others = relative.filter(alike & (pl.col("host") != host))
        found = _judge_host(own, others, _ANY_FALSE / len(parts))
        if found is not None:
            yield found


def _sign() -> pl.Expr:
    lower = pl.col("kind").is_in(list(LOWER_IS_BETTER))
    return pl.when(lower).then(1.0).otherwise(-1.0)


def _judge_host(own: pl.DataFrame, others: pl.DataFrame, chance: float) -> FleetHost | None:
    peers = others["host"].n_unique()
    if own.height < _LEAST_RUNS or others.height < _LEAST_RUNS or peers < _LEAST_PEERS:
        return None
    here, there = own["badness"].to_list(), others["badness"].to_list()
    difference = statistics.fmean(here) - statistics.fmean(there)
    error = math.hypot(*(statistics.stdev(each) / math.sqrt(len(each)) for each in (here, there)))
    low = difference - find_reach(min(len(here), len(there)) - 1, chance) * error
    if difference < math.log(_WORSE) or low <= 0:
        return None
    kind: GaugeKind = own["kind"][0]
    return FleetHost(
        host=own["host"][0],
        kind=kind,
        place=own["place"][0] or "",
        times_worse=math.exp(difference),
        low=math.exp(low),
        runs=own.height,
        peers=peers,
    )


def _name_unpriced(frame: pl.DataFrame) -> list[str]:
    lost = frame.filter(pl.col("usd_per_hour").is_null() & (pl.col("lost_hours") > 0))
    return sorted(set(lost["chip"].fill_null("")))
