"""A device's idle time by cause, and how much of it is work of the host's own, not launching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.run.trace import CopyDirection, GapCause
from fuelline.signals.traced.gaps import PART_OF_CAUSE
from fuelline.signals.traced.host import LONG_CALL_NS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fuelline.schema.parts import IdleCause
    from fuelline.schema.run.trace import HostFrame
    from fuelline.signals.traced.ledger import Account

_OWN: tuple[IdleCause, ...] = ("python", "python between steps")
_PREPARES: tuple[IdleCause, ...] = (*_OWN, "operators")
"""Operators, too, may work on the host, if a copy to the device follows."""


_RECURS = 3
"""Gaps that make a pattern where no mark says that they are of a step."""
_MOSTLY = 0.5


@dataclass(frozen=True)
class OwnWork:
    """Idle time in gaps so long that the host did something else than launching."""

    seen_ns: Mapping[IdleCause, int]
    """By cause: what recorded stacks show."""
    preparing_ns: Mapping[IdleCause, int]
    """By cause: in gaps that end in a copy to the device, so that it made the next input."""

    @property
    def whole_ns(self) -> int:
        """Of all causes."""
        return sum(self.seen_ns.values()) + sum(self.preparing_ns.values())

    def of(self, cause: IdleCause) -> int:
        """Of one cause."""
        return self.seen_ns.get(cause, 0) + self.preparing_ns.get(cause, 0)


def measure_own_work(
    account: Account, frames: Mapping[IdleCause, HostFrame], *, is_marked: bool
) -> OwnWork:
    """Of one device, in its window; `is_marked` if that is of marked steps."""
    gaps = account.gaps.gaps
    pieces = account.idle.filter(pl.col("cause").is_in(_PREPARES))
    place = gaps["start_ns"].search_sorted(pieces["start_ns"], side="right").cast(pl.Int64) - 1
    ends = gaps["end_ns"].gather(place)
    lasted = ends - gaps["start_ns"].gather(place)
    inputs = account.events["start_ns"].filter(
        (account.events["direction"] == int(CopyDirection.HOST_TO_DEVICE))
        & account.events["correlation"].is_not_null()  # the host asked for it, not a program of XLA
    )
    seen = [cause for cause in _OWN if cause in frames]
    long = pieces.select(
        (pl.col("end_ns") - pl.col("start_ns")).alias("ns"),
        pl.col("cause").cast(pl.String),
        ends.is_in(inputs.implode()).alias("is_input"),
        place.alias("gap"),
    ).filter((lasted >= LONG_CALL_NS) & (pl.col("is_input") | pl.col("cause").is_in(seen)))
    if not is_marked and long["gap"].n_unique() < _RECURS:
        return OwnWork({}, {})
    sums = [
        dict(long.filter(own).group_by("cause").agg(pl.col("ns").sum()).iter_rows())
        for own in (~pl.col("is_input"), pl.col("is_input"))
    ]
    return OwnWork(*sums)


def join_own_work(works: Sequence[OwnWork], gaps: Sequence[GapCause]) -> list[OwnWork]:
    """Nothing unless it is most of what slow launching costs on all devices."""
    launching = sum(
        gap.seconds for gap in gaps if gap.part == "launch-bound" and gap.cause != "allocator"
    )
    own = sum(work.whole_ns for work in works) / 1e9
    return list(works) if own >= _MOSTLY * launching else []


def find_largest(works: Sequence[OwnWork], gaps: Sequence[GapCause]) -> IdleCause | None:
    """The costliest cause of slow launching, without what the host did for itself."""
    spent: dict[IdleCause, float] = {}
    for gap in gaps:
        if gap.part == "launch-bound" and gap.cause != "allocator":
            spent[gap.cause] = spent.get(gap.cause, 0.0) + gap.seconds
    for cause in spent:
        spent[cause] -= sum(work.of(cause) for work in works) / 1e9
    return max(spent, key=lambda cause: spent[cause], default=None)


def find_gap_causes(
    account: Account, during: Mapping[IdleCause, str], frames: Mapping[IdleCause, HostFrame]
) -> list[GapCause]:
    """The causes, the costliest first."""
    ledger, gaps = account.ledger, account.gaps.gaps
    found = []
    for (cause,), pieces in account.idle.partition_by("cause", as_dict=True).items():
        took = pieces["end_ns"] - pieces["start_ns"]
        gap = gaps["start_ns"].search_sorted(pieces["start_ns"], side="right")
        found.append(
            GapCause(
                rank=ledger.rank,
                device=ledger.device,
                cause=cause,
                part=PART_OF_CAUSE[cause],
                seconds=int(took.sum()) / 1e9,
                share=int(took.sum()) / account.wall_ns,
                gaps=int((gap != gap.shift(1)).fill_null(value=True).sum()),  # both are in order
                longest_seconds=int(took.max()) / 1e9,
                during=during.get(cause, ""),
                frame=frames.get(cause),
            )
        )
    return sorted(found, key=lambda each: (-each.seconds, each.cause))
