"""Which excerpts of a very long recording are kept, and its tables on the clock of the excerpts.

A run may leave millions of records, and its diagnosis must not need gigabytes. Beyond a number of
records, stretches spread evenly over the run are kept and put end to end: the clock stands still
between them. What lasts longer than an excerpt is cut where excerpts end, so that every part of a
step has the share of the time that it had in the run: a save of 2 s meets several excerpts and
lasts as long in each of them. `schema.run.recording.Excerpts` says how times are to be read.

Powers of two, and periods that begin on the wall clock: hosts of one run nearly always come to the
same excerpts, each for itself, so that their collectives still match.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from fuelline.schema.run.recording import Blindspot, Excerpts
from fuelline.schema.units import duration
from fuelline.schema.wire import Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from fuelline.schema.run.samples import Limits

MOST_RECORDS = 500_000
"""Of one process that are judged: 0.5 kB of memory each while a diagnosis runs, and about 250 MB
together (bench/long_spool.py)."""
MOST_RECORDS_OF_HOST = 1_500_000
"""Of all processes of a host together, most of which are only looked through."""
EXCERPTS = 256
"""At least, in the time that the busiest process needs for its records: each has some 500 records
then, and steps that are cut by its ends, one each, are few."""
_GAP_FRAC = 1 / 8
"""Of an excerpt: what comes before and after a longer gap is kept, to say what the gap was."""

_ALWAYS = (
    *(Kind.PROCESS, Kind.SOURCE, Kind.BLINDSPOT, Kind.RANK),
    *(Kind.WORKER, Kind.FLOPS, Kind.ZOOM, Kind.SOURCE_START),
)
"""Facts, wherever they stand."""
_CUT = (
    *(Kind.WAIT, Kind.SOURCE_START, Kind.PIN, Kind.COPY, Kind.BACKWARD, Kind.STEP, Kind.PAUSE),
    *(Kind.SYNC, Kind.GC, Kind.ZOOM, Kind.COLLECTIVE, Kind.COLLECTIVE_WAIT),
)
"""What a step is made of: its share of each excerpt counts. Everything else, as the fetches of
workers, is kept as it is if it begins in an excerpt."""
_TURNS = (Kind.WAIT, Kind.SOURCE_START, Kind.BACKWARD, Kind.STEP)
"""What says which part of a step a gap after it or before it is."""
_CUT_FIELDS = {"a": (Kind.PIN, Kind.COPY), "b": (Kind.BACKWARD,), "d": (Kind.WAIT,)}
"""Times and bytes that are cut with the duration."""
_MATCHED = (Kind.COLLECTIVE, Kind.COLLECTIVE_WAIT)


@dataclass(frozen=True)
class Pace:
    """How many records the processes of a host left, and how quickly the busiest of them came."""

    most: int
    """Of one process."""
    together: int
    moments_ns: Sequence[int]
    """Of the busiest process: of records at equal distances in its spool, in order."""


def has_too_many(records: Collection[int]) -> bool:
    """Whether processes with this many records each have more than are judged."""
    return max(records, default=0) > MOST_RECORDS or sum(records) > MOST_RECORDS_OF_HOST


def choose_excerpts(pace: Pace, wall_offset_ns: int) -> Excerpts | None:
    """The excerpts to keep; None if there are few enough records to keep them all.

    `wall_offset_ns` is what the wall clock is ahead of the recording's.
    """
    excess = max(pace.most / MOST_RECORDS, pace.together / MOST_RECORDS_OF_HOST)
    moments = pace.moments_ns
    gaps = sorted(after - before for before, after in itertools.pairwise(moments))
    if excess <= 1 or not gaps:
        return None
    # The usual time between two of them: a job may have slept for hours before and after.
    usual_ns = max(1, gaps[len(gaps) // 2] * len(gaps) // EXCERPTS)
    parts = 2
    while parts < excess:
        parts *= 2
    period_ns = max(parts, 1 << (usual_ns.bit_length() - 1))
    first_ns = moments[0] - (moments[0] + wall_offset_ns) % period_ns
    return Excerpts(
        first_ns=first_ns,
        period_ns=period_ns,
        kept_ns=period_ns // parts,
        records=pace.together,
    )


def state_excerpts(excerpts: Excerpts) -> Blindspot:
    """What it costs that not everything was kept."""
    dropped = 1 - excerpts.kept_frac
    return Blindspot(
        what=f"{100 * dropped:.0f} % of the run, in short stretches all over it",
        why=f"{excerpts.records:,} records are too many to judge all of them; only the first "
        f"{duration(excerpts.kept_ns / 1e9)} of every {duration(excerpts.period_ns / 1e9)} were "
        "judged, and totals are scaled up from these",
        forbids="what happened at a given moment, and exact totals of the run",
    )


def choose_rows(events: pl.DataFrame, excerpts: Excerpts) -> pl.Series:
    """The `at` of the events of a process of which something lies in the excerpts, in order.

    Also of what stands beside a long gap, or before an excerpt, and explains what follows.
    """
    always = pl.col("kind").is_in([int(kind) for kind in _ALWAYS])
    has_part = pl.col("is_cut") & (pl.col("until_ns") > pl.col("from_ns"))
    placed = _placed(
        events.select("at", "tid", "kind", "start_ns", "dur_ns"), excerpts
    ).with_columns(is_in=pl.col("begins") | has_part)
    turns = pl.col("kind").is_in([int(kind) for kind in _TURNS])
    in_order = placed.filter(turns).sort("tid", "start_ns")
    # A batch that is learned from in an excerpt says whose batches are.
    is_learned = (pl.col("kind") == Kind.WAIT) & pl.col("is_in").shift(-1).over("tid")
    chosen = (
        placed.filter(pl.col("is_in") | always)["at"],
        in_order.filter(_is_beside_gap(excerpts) | is_learned)["at"],
    )
    rows: pl.Series = pl.concat(chosen).unique().sort()
    return rows


def cut_events(events: pl.DataFrame, excerpts: Excerpts) -> pl.DataFrame:
    """Chosen events on the clock of the excerpts.

    | start_ns | dur_ns |      | start_ns | dur_ns |   10 of each 40 are kept
    | 3        | 2      |  ->  | 3        | 2      |
    | 8        | 40     |      | 8        | 10     |   2 of the first excerpt, 8 of the second
    """
    placed = _placed(events, excerpts).with_row_index("row")
    # What began between two excerpts now begins with the second, in the order in which it did; of
    # what also ended there a nanosecond is left. Few do: to number all events is ten times slower.
    is_early = pl.col("is_cut") & ~pl.col("begins")
    number = pl.int_range(pl.len()).over("tid", "from_ns", order_by="start_ns")
    early = (
        placed.filter(is_early)
        .with_columns(from_ns=pl.col("from_ns") + number)
        .with_columns(until_ns=pl.max_horizontal("until_ns", pl.col("from_ns") + 1))
    )
    in_order = pl.concat([placed.filter(~is_early), early]).sort("row")
    return in_order.select(*_on_their_clock(events.columns))


def _placed(events: pl.DataFrame, excerpts: Excerpts) -> pl.DataFrame:
    """With when events began and ended on the clock of the excerpts, and whether in one."""
    return events.with_columns(
        is_cut=pl.col("kind").is_in([int(kind) for kind in _CUT]),
        begins=_is_kept(pl.col("start_ns"), excerpts),
        from_ns=_fold(pl.col("start_ns"), excerpts),
        until_ns=_fold(pl.col("start_ns") + pl.col("dur_ns"), excerpts),
    )


def _is_beside_gap(excerpts: Excerpts) -> pl.Expr:
    """Whether a thread came to no other turn for long before or after; at ends, too."""
    after = pl.col("from_ns").shift(-1).over("tid") - pl.col("until_ns")
    before = pl.col("from_ns") - pl.col("until_ns").shift(1).over("tid")
    longest_ns = int(excerpts.kept_ns * _GAP_FRAC)
    is_after = (after > longest_ns).fill_null(value=True)
    is_before = (before > longest_ns).fill_null(value=True)
    return is_after | is_before


def _on_their_clock(names: list[str]) -> list[pl.Expr]:
    """The columns of events, with what was cut."""
    kind, whole_ns = pl.col("kind"), pl.col("dur_ns")
    cut_ns = pl.col("until_ns") - pl.col("from_ns")
    is_less = pl.col("is_cut") & (cut_ns < whole_ns)
    columns = {
        "start_ns": pl.col("from_ns"),
        "dur_ns": pl.when("is_cut").then(cut_ns).otherwise(whole_ns),
        # What a source needs to start is asked of all of it.
        "e": pl.when(is_less & (kind == Kind.SOURCE_START)).then(whole_ns).otherwise("e"),
    }
    for name, kinds in _CUT_FIELDS.items():
        is_theirs = kind.is_in([int(each) for each in kinds]) & (pl.col(name) > 0)
        less = (pl.col(name) * (cut_ns / whole_ns)).cast(pl.Int64)
        columns[name] = pl.when(is_less & is_theirs).then(less).otherwise(name)
    # Whoever came before the excerpt came at a moment that is not in the table.
    is_unmatched = kind.is_in([int(each) for each in _MATCHED]) & ~pl.col("begins")
    columns["d"] = pl.when(is_unmatched).then(-1).otherwise(columns["d"])
    return [columns.get(name, pl.col(name)).alias(name) for name in names]


_TIMES = ("at_ns", "window_ns", "from_ns", "until_ns", "started_ns")


def fold_tables(tables: Mapping[str, pl.DataFrame], excerpts: Excerpts) -> dict[str, pl.DataFrame]:
    """What the observer saw, on the clock of the excerpts: all of it, only closer together."""
    return {
        name: frame
        if name == "events"
        else frame.with_columns(
            _fold(pl.col(column), excerpts) for column in _TIMES if column in frame.columns
        )
        for name, frame in tables.items()
    }


def shift_tables(tables: Mapping[str, pl.DataFrame], shift_ns: int) -> dict[str, pl.DataFrame]:
    """All tables on a clock that is ahead by this much."""
    names = (*_TIMES, "start_ns")
    return {
        name: frame.with_columns(
            pl.col(column) + shift_ns for column in names if column in frame.columns
        )
        for name, frame in tables.items()
    }


def fold_limits(limits: Sequence[Limits], excerpts: Excerpts, shift_ns: int = 0) -> list[Limits]:
    """Likewise, of limits."""
    return [
        msgspec.structs.replace(each, at_ns=excerpts.fold(each.at_ns) + shift_ns) for each in limits
    ]


def _fold(at_ns: pl.Expr, excerpts: Excerpts) -> pl.Expr:
    """`Excerpts.fold`, for a column."""
    since_ns = at_ns - excerpts.first_ns
    folded = (
        excerpts.first_ns
        + since_ns // excerpts.period_ns * excerpts.kept_ns
        + (since_ns % excerpts.period_ns).clip(None, excerpts.kept_ns)
    )
    return pl.when(since_ns < 0).then(at_ns).otherwise(folded)


def _is_kept(at_ns: pl.Expr, excerpts: Excerpts) -> pl.Expr:
    since_ns = at_ns - excerpts.first_ns
    return (since_ns < 0) | (since_ns % excerpts.period_ns < excerpts.kept_ns)
