"""How ranks wait for each other: who is late, what it costs the others, in which part of a step.

A rank is a culprit if it causes clearly more of the waiting than its share. If ranks take turns, it
is jitter, and nobody is to blame. What a late rank did differently is read off its own segments
between two collectives, against the mean of the others'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from fuelline.schema.diagnosis.facts import Culprit, SyncFacts
from fuelline.schema.readings import Reading
from fuelline.signals.ranks.exchange import fit_exchange
from fuelline.signals.ranks.jitter import forecast_jitter
from fuelline.signals.statistics import proportion, total
from fuelline.timeline.collectives import MatchedCollectives, match_collectives

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fuelline.schema.parts import StepPart
    from fuelline.signals.ranks.hosts import HostView
    from fuelline.timeline.segments import Span, StepSegments

CLEARLY_LATE = 0.6
"""Of two ranks, one is a culprit if at least this share of the waiting, less its sampling error, is
for it; of more ranks, if it causes twice its share. Below that they take turns."""

_WAITING_PARTS = ("collectives",)


@dataclass(frozen=True)
class Comparison:
    """How ranks wait for each other, and the collectives that this was read off."""

    facts: SyncFacts
    matched: MatchedCollectives


def compare_ranks(hosts: Sequence[HostView]) -> Comparison:
    """Compare all ranks over the stretch that all of them trained in.

    Culprits come without a reason: that needs their segments, see `find_reason`.
    """
    spans = {rank: span for host in hosts for rank, span in host.spans.items()}
    matched = match_collectives([host.arrivals for host in hosts])
    if len(spans) > 1:
        start_ns = max(span.start_ns for span in spans.values())
        end_ns = min(span.end_ns for span in spans.values())
        inside = matched.within(start_ns, end_ns) if matched.ranks else matched
        if inside.frame.height and end_ns > start_ns:
            return Comparison(_measure(hosts, inside, spans, end_ns - start_ns), inside)
    return Comparison(SyncFacts(ranks=len(spans)), matched)


def _measure(
    hosts: Sequence[HostView], matched: MatchedCollectives, spans: Mapping[int, Span], wall_ns: int
) -> SyncFacts:
    ranks = sorted(spans)
    blamed = _blame(matched)
    sums = matched.frame.select(each.sum() for each in matched.of("wait_ns")).row(0)
    waited = dict(zip(matched.ranks, sums, strict=True))
    return SyncFacts(
        ranks=len(ranks),
        wait_share=total(
            sum(waited.values()) / len(ranks) / wall_ns,
            "frac",
            "collectives.wait over ranks and window",
            matched.frame.height,
        ),
        straggler_share=total(
            float(blamed["alone_ns"].sum()) / wall_ns,
            "frac",
            "collectives.last less second last over window",
        ),
        culprits=_find_culprits(blamed, spans),
        wait_share_by_rank={str(rank): waited.get(rank, 0) / wall_ns for rank in ranks},
        exchange=fit_exchange(hosts, matched, wall_ns),
        jitter=forecast_jitter(matched, _step_of(matched.frame["last_ns"], spans[ranks[0]])),
    )


def _find_culprits(blamed: pl.DataFrame, spans: Mapping[int, Span]) -> list[Culprit]:
    steps = _worst_of_each_step(blamed, spans[min(spans)])
    caused = (
        steps.group_by("late")
        .agg(pl.col("caused_ns").sum(), pl.len().alias("times"))
        .sort("caused_ns", descending=True)
    )
    everything = float(steps["caused_ns"].sum())
    if everything <= 0:
        return []
    # A few long waits prove less than many: the number of steps, weighted by what they cost.
    weight = everything**2 / float((steps["caused_ns"].cast(pl.Float64) ** 2).sum())
    limit = CLEARLY_LATE if len(spans) == 2 else min(CLEARLY_LATE, 2 / len(spans))
    culprits = []
    kept_frac = spans[min(spans)].kept_frac
    for rank, caused_ns, times in caused.iter_rows():
        share = proportion(caused_ns / everything * weight, weight, "collectives.caused wait")
        if isinstance(share, Reading) and (share.low or 0.0) >= limit and rank in spans:
            culprits.append(
                Culprit(
                    rank=rank,
                    late_count=round(times / kept_frac),
                    of=round(steps.height / kept_frac),
                    caused_wait_seconds=caused_ns / kept_frac / 1e9,
                    share_of_waiting=share,
                )
            )
    return culprits


def _blame(matched: MatchedCollectives) -> pl.DataFrame:
    """One row per collective: who came last, what the others waited together, and how long.

    A rank that left before the last one came did not wait for it: the sender of a broadcast.
    """
    waits = matched.of("wait_ns")
    others = [
        pl.when(pl.col("late") != rank).then(wait)
        for rank, wait in zip(matched.ranks, waits, strict=True)
    ]
    return matched.frame.select(
        "late",
        pl.sum_horizontal(waits).alias("caused_ns"),
        pl.min_horizontal(others).alias("alone_ns"),
        "last_ns",
    )


def _worst_of_each_step(blamed: pl.DataFrame, span: Span) -> pl.DataFrame:
    """Of the collectives of one step, the rank that cost most: | late | caused_ns |."""
    return (
        blamed.with_columns(_step_of(blamed["last_ns"], span).alias("step"))
        .group_by("step", "late")
        .agg(pl.col("caused_ns").sum())
        .sort("caused_ns", descending=True)
        .group_by("step", maintain_order=True)
        .agg(pl.col("late").first(), pl.col("caused_ns").first())
    )


def _step_of(moments_ns: pl.Series, span: Span) -> pl.Series:
    """The step of the first rank that each moment lies in."""
    return span.boundaries.search_sorted(moments_ns, side="left")


def sum_parts(
    comparison: Comparison, culprit: Culprit, segments: StepSegments
) -> dict[StepPart, float]:
    """Nanoseconds of each part before the collectives to which the culprit came last.

    Each piece counts for the collective that follows it; it is of the culprit or of another rank.
    """
    blamed = _blame(comparison.matched).filter(pl.col("late") == culprit.rank)
    parts = _parts_before(blamed["last_ns"], segments)
    return {part: ns / segments.kept_frac for part, ns in parts.items()}


def find_reason(sums: Mapping[int, Mapping[StepPart, float]], culprit: Culprit) -> Culprit:
    """The culprit with the part of a step in which it spent longer than the others, and how much.

    `sums` are `sum_parts` of its own pieces and of some others'. Weighted by cost through plain
    sums: a long delay adds more than a short one.
    """
    rank = culprit.rank
    others = [parts for each, parts in sums.items() if each != rank]
    if not others:
        return culprit
    excess = {
        part: sums[rank].get(part, 0.0) - sum(each.get(part, 0.0) for each in others) / len(others)
        for part in {name for parts in sums.values() for name in parts}
        if part not in _WAITING_PARTS
    }
    if not excess:
        return culprit
    part = max(excess, key=lambda name: excess[name])
    seconds = max(0.0, excess[part]) / 1e9
    return msgspec.structs.replace(culprit, part=part, excess_seconds=seconds)


def _parts_before(collectives_ns: pl.Series, segments: StepSegments) -> dict[StepPart, float]:
    """Time of each part in the stretches that end with one of the collectives."""
    waits = segments.pieces.filter(pl.col("part").is_in(_WAITING_PARTS))
    if not waits.height:
        return {}
    # A stretch ends where this rank enters the collective during which the last one arrived.
    ends = waits["start_ns"].sort()
    at = (ends.search_sorted(collectives_ns, side="right").cast(pl.Int64) - 1).clip(0)
    wanted = ends.gather(at).unique().sort()
    length = pl.col("end_ns") - pl.col("start_ns")
    stretches = (
        segments.pieces.filter(~pl.col("part").is_in(_WAITING_PARTS))
        .sort("start_ns")
        .join_asof(
            ends.alias("entered_ns").to_frame().with_columns(ends_ns=pl.col("entered_ns")),
            left_on="start_ns",
            right_on="entered_ns",
            strategy="forward",
        )
        .filter(pl.col("ends_ns").is_in(wanted.implode()))
        .group_by("part")
        .agg(length.sum().alias("ns"))
    )
    return {part: float(ns) for part, ns in stretches.iter_rows()}
