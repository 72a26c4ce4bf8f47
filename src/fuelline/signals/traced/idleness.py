"""A device's idle time by cause, and how much of it is work of the host's own, not launching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.run.trace import CopyDirection, GapCause
from fuelline.signals.traced.gaps import PART_OF_CAUSE
from fuelline.signals.traced.host import LONG_CALL_NS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.schema.parts import IdleCause
    from fuelline.schema.run.trace import HostFrame
    from fuelline.signals.traced.ledger import Account

_OWN: tuple[IdleCause, ...] = ("operators", "python", "python between steps")


@dataclass(frozen=True)
class OwnWork:
    """Idle time in gaps so long that the host did something else than launching."""

    whole_ns: int
    preparing_ns: int
    """In gaps that end in a copy to the device: it made the next input."""
    by_cause_ns: Mapping[IdleCause, int]


NO_OWN_WORK = OwnWork(0, 0, {})
_RECURS = 3
"""Gaps that make a pattern where no mark says that they are of a step."""


def measure_own_work(account: Account, *, is_marked: bool) -> OwnWork:
    """Of one device, in its window; `is_marked` if that is of marked steps."""
    gaps = account.gaps.gaps
    pieces = account.idle.filter(pl.col("cause").is_in(_OWN))
    place = gaps["start_ns"].search_sorted(pieces["start_ns"], side="right").cast(pl.Int64) - 1
    ends = gaps["end_ns"].gather(place)
    lasted = ends - gaps["start_ns"].gather(place)
    inputs = account.events["start_ns"].filter(
        account.events["direction"] == int(CopyDirection.HOST_TO_DEVICE)
    )
    long = pieces.select(
        (pl.col("end_ns") - pl.col("start_ns")).alias("ns"),
        "cause",
        ends.is_in(inputs.implode()).alias("is_input"),
        place.alias("gap"),
    ).filter(lasted >= LONG_CALL_NS)
    if not is_marked and long["gap"].n_unique() < _RECURS:
        return NO_OWN_WORK
    by_cause = long.group_by(pl.col("cause").cast(pl.String)).agg(pl.col("ns").sum())
    return OwnWork(
        whole_ns=int(long["ns"].sum()),
        preparing_ns=int(long.filter("is_input")["ns"].sum()),
        by_cause_ns=dict(by_cause.iter_rows()),
    )


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
