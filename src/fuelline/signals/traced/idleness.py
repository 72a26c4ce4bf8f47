"""A device's idle time by cause, and how much of it is work of the host's own, not launching."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.run.trace import CopyDirection, GapCause
from fuelline.signals.traced.gaps import PART_OF_CAUSE
from fuelline.signals.traced.host import LONG_CALL_NS
from fuelline.timeline.intervals import total_ns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fuelline.schema.parts import IdleCause, LedgerPart
    from fuelline.schema.run.trace import HostFrame
    from fuelline.signals.traced.gaps import Gaps
    from fuelline.signals.traced.ledger import Account
    from fuelline.timeline.trace import Trace

_OWN: tuple[IdleCause, ...] = ("python", "python between steps")
_PREPARES: tuple[IdleCause, ...] = (*_OWN, "operators")
"""Operators, too, may work on the host, if a copy to the device follows."""


_LAUNCHES = [cause for cause, part in PART_OF_CAUSE.items() if part == "launch-bound"]
_INPUT_BYTES = 4096
"""A batch is larger: fewer bytes are a scalar, or the address of something."""
_RECURS = 3
"""Gaps that make a pattern where no mark says that they are of a step."""
_MOSTLY = 0.5


@dataclass(frozen=True)
class HostWork:
    """What the host did in the idle time of one device that is its fault, in nanoseconds."""

    seen_ns: Mapping[IdleCause, int]
    """By cause: code of its own that recorded stacks show."""
    preparing_ns: Mapping[IdleCause, int]
    """By cause: in gaps that end in a copy to the device, so that it made the next input."""
    unseen_ns: Mapping[IdleCause, int]
    """By cause: stretches so long that they hold no launch, and of which nothing was recorded."""
    launching_ns: Mapping[IdleCause, int]
    """By cause: the rest, launching."""


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


def tell_own_work(gaps: Gaps, inputs: pl.Series, *, is_marked: bool, has_stacks: bool) -> Gaps:
    """The same idle time, with the part of what is work of the host's own, not launching.

    `is_marked`: steps are. `inputs` are the moments at which inputs are copied to the device.
    """
    pieces, whole = gaps.pieces, gaps.gaps
    if not pieces.height:
        return gaps
    place = whole["start_ns"].search_sorted(pieces["start_ns"], side="right").cast(pl.Int64) - 1
    ends = whole["end_ns"].gather(place)
    is_long = ends - whole["start_ns"].gather(place) >= LONG_CALL_NS
    is_input = is_long & ends.is_in(inputs.implode()) & pieces["cause"].is_in(_PREPARES)
    lasts = pieces["end_ns"] - pieces["start_ns"] >= (0 if has_stacks else LONG_CALL_NS)
    is_code = is_long & ~is_input & lasts & pieces["cause"].is_in(_OWN)
    if not is_marked and place.filter(is_input | is_code).n_unique() < _RECURS:
        return gaps
    told: tuple[tuple[pl.Series, LedgerPart], ...] = (
        (is_input, "data wait"),
        (is_code, "host code"),
    )
    part = pieces["part"]
    for own, name in told:
        part = part.set(own, name)
    return replace(gaps, pieces=pieces.with_columns(part))


def is_mostly_own(accounts: Sequence[Account]) -> bool:
    """Whether work of the host's own is most of what its launching seems to cost on all devices."""
    idle = [account.idle.filter(pl.col("cause").is_in(_LAUNCHES)) for account in accounts]
    whole = sum(total_ns(each) for each in idle)
    slow = sum(total_ns(each.filter(pl.col("part") == "launch-bound")) for each in idle)
    return whole - slow >= _MOSTLY * whole


def measure_host_work(account: Account, frames: Mapping[IdleCause, HostFrame]) -> HostWork:
    """Of one device, in its window; `frames` are where the host was in Python, by cause."""
    took = pl.col("end_ns") - pl.col("start_ns")
    idle = account.idle.filter(pl.col("cause").is_in(_LAUNCHES))
    by_part: dict[str, dict[IdleCause, int]] = {}
    for (part,), same in idle.partition_by("part", as_dict=True).items():
        by_part[part] = dict(same.group_by("cause").agg(took.sum().alias("ns")).iter_rows())
    code = by_part.get("host code", {})
    return HostWork(
        seen_ns={cause: spent for cause, spent in code.items() if cause in frames},
        preparing_ns=by_part.get("data wait", {}),
        unseen_ns={cause: spent for cause, spent in code.items() if cause not in frames},
        launching_ns=by_part.get("launch-bound", {}),
    )


def find_largest(works: Sequence[HostWork]) -> IdleCause | None:
    """The costliest cause of slow launching."""
    return _costliest([work.launching_ns for work in works])


def find_preparing(works: Sequence[HostWork]) -> IdleCause | None:
    """The cause under which most of the next input was made."""
    return _costliest([work.preparing_ns for work in works])


def _costliest(spent_ns: Sequence[Mapping[IdleCause, int]]) -> IdleCause | None:
    sums: dict[IdleCause, int] = {}
    for each in spent_ns:
        for cause, spent in each.items():
            sums[cause] = sums.get(cause, 0) + spent
    return max(sums, key=lambda cause: sums[cause], default=None)


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
                part=_main_part(pieces),
                seconds=int(took.sum()) / 1e9,
                share=int(took.sum()) / account.wall_ns,
                gaps=int((gap != gap.shift(1)).fill_null(value=True).sum()),  # both are in order
                longest_seconds=int(took.max()) / 1e9,
                during=during.get(cause, ""),
                frame=frames.get(cause),
            )
        )
    return sorted(found, key=lambda each: (-each.seconds, each.cause))


def _main_part(pieces: pl.DataFrame) -> LedgerPart:
    took = pl.col("end_ns") - pl.col("start_ns")
    sums = pieces.group_by("part").agg(took.sum().alias("ns")).sort("ns", "part")
    part: LedgerPart = sums["part"][-1]
    return part
