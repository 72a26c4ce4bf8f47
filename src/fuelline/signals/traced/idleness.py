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
    from fuelline.timeline.trace import Trace

_OWN: tuple[IdleCause, ...] = ("python", "python between steps")
_PREPARES: tuple[IdleCause, ...] = (*_OWN, "operators")
"""Operators, too, may work on the host, if a copy to the device follows."""


_INPUT_BYTES = 4096
"""A batch is larger: fewer bytes are a scalar, or the address of something."""
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
    unseen_ns: Mapping[IdleCause, int]
    """By cause: stretches so long that they hold no launch, and of which nothing was recorded."""

    @property
    def whole_ns(self) -> int:
        """Of all causes."""
        kinds = (self.seen_ns, self.preparing_ns, self.unseen_ns)
        return sum(sum(kind.values()) for kind in kinds)

    def of(self, cause: IdleCause) -> int:
        """Of one cause."""
        kinds = (self.seen_ns, self.preparing_ns, self.unseen_ns)
        return sum(kind.get(cause, 0) for kind in kinds)


def find_inputs(trace: Trace, rank: int) -> pl.Series:
    """When copies to the device begin that may hold an input."""
    columns = ("start_ns", "direction", "size_bytes", "correlation", "external")
    asked = pl.col("direction") == int(CopyDirection.HOST_TO_DEVICE)
    numbered = pl.any_horizontal(pl.col("correlation", "external").is_not_null())
    large = pl.col("size_bytes").fill_null(_INPUT_BYTES) >= _INPUT_BYTES
    parts = trace.parts("device", rank, columns)
    # The host asked for it, not a program of XLA: it has a number.
    found = [part.filter(asked & numbered & large)["start_ns"] for part in parts]
    return pl.concat(found) if found else pl.Series("start_ns", [], pl.Int64)


def measure_own_work(
    account: Account,
    frames: Mapping[IdleCause, HostFrame],
    inputs: pl.Series,
    *,
    is_marked: bool,
) -> OwnWork:
    """Of one device, in its window; `is_marked` if that is of marked steps.

    `inputs` are the moments at which inputs are copied to the device.
    """
    gaps = account.gaps.gaps
    pieces = account.idle.filter(pl.col("cause").is_in(_PREPARES))
    place = gaps["start_ns"].search_sorted(pieces["start_ns"], side="right").cast(pl.Int64) - 1
    ends = gaps["end_ns"].gather(place)
    lasted = ends - gaps["start_ns"].gather(place)
    seen = [cause for cause in _OWN if cause in frames]
    unseen = [cause for cause in _OWN if cause not in frames]
    is_seen, is_input = pl.col("cause").is_in(seen), pl.col("is_input")
    is_unseen = pl.col("cause").is_in(unseen) & (pl.col("ns") >= LONG_CALL_NS) & ~is_input
    long = pieces.select(
        (pl.col("end_ns") - pl.col("start_ns")).alias("ns"),
        pl.col("cause").cast(pl.String),
        ends.is_in(inputs.implode()).alias("is_input"),
        place.alias("gap"),
    ).filter((lasted >= LONG_CALL_NS) & (is_input | is_seen | is_unseen))
    if not is_marked and long["gap"].n_unique() < _RECURS:
        return OwnWork({}, {}, {})
    sums = [
        dict(long.filter(own).group_by("cause").agg(pl.col("ns").sum()).iter_rows())
        for own in (is_seen & ~is_input, is_input, is_unseen)
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


def find_preparing(works: Sequence[OwnWork]) -> IdleCause | None:
    """The cause under which most of the next input was made."""
    spent: dict[IdleCause, int] = {}
    for work in works:
        for cause, spent_ns in work.preparing_ns.items():
            spent[cause] = spent.get(cause, 0) + spent_ns
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
