"""The truth of a replayed trace, from its own ledger, and what was found of it; shares of a window.

The window is the device's: from when it passed the end of the first step until the last mark, so
that both sides speak of the same stretch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import polars as pl

from bench.replay.events import NotReplayableError
from fuelline.schema.run.trace import CopyDirection
from fuelline.signals.traced import survey_trace
from fuelline.timeline.intervals import intersect, merge, merge_all, total_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.schema.diagnosis.findings import Diagnosis
    from fuelline.schema.parts import LedgerPart
    from fuelline.timeline.trace import Trace

__all__ = ["FIGURES", "Shares", "find_found", "find_truth"]


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the window; None is not known."""

    device_idle: float | None = None
    """Neither kernel nor copy."""
    input_wait: float | None = None
    """Idle while the host waited for a batch."""
    copies: float | None = None
    """Copying between host and device while nothing computes, and waiting for that to begin."""
    launch_bound: float | None = None
    """Idle because the host had launched nothing, for whatever other reason; also because it
    loaded what it launches for the first time, which no event can tell apart."""


FIGURES = Shares.__struct_fields__
_PARTS: Mapping[str, tuple[LedgerPart, ...]] = {
    "input_wait": ("data wait",),
    "launch_bound": ("launch-bound", "synchronisation", "allocation", "start-up"),
}


def find_truth(trace: Trace, rank: int, device: int, window: tuple[int, int]) -> Shares:
    """What the ledger of the device says of a window."""
    survey = survey_trace(trace)
    account = next(
        (
            each
            for each in survey.accounts
            if (each.ledger.rank, each.ledger.device) == (rank, device)
        ),
        None,
    )
    if account is None:
        raise NotReplayableError(
            "the trace shows a loader, but nothing that its device did, so there is no truth to "
            "compare with"
        )
    start_ns, end_ns = window
    pieces = (
        account.usual()
        .all_pieces()
        .with_columns(
            pl.col("start_ns").clip(start_ns, end_ns), pl.col("end_ns").clip(start_ns, end_ns)
        )
    )
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    spent = dict(
        pieces.group_by(pl.col("part").cast(pl.String)).agg(length.alias("ns")).iter_rows()
    )
    idle = account.gaps.gaps.select(
        (pl.col("end_ns").clip(start_ns, end_ns) - pl.col("start_ns").clip(start_ns, end_ns)).sum()
    ).item()
    wall_ns = end_ns - start_ns
    shares = {
        figure: sum(spent.get(part, 0) for part in parts) / wall_ns
        for figure, parts in _PARTS.items()
    }
    copying = pieces.filter(pl.col("part").cast(pl.String) == "copies")
    inside = intersect(merge(copying), _outside_copies(account.events, account.gaps.pieces))
    copies = total_ns(inside) / wall_ns
    return Shares(device_idle=idle / wall_ns, copies=copies, **shares)


def _outside_copies(events: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """When something was copied between host and device, or the host was in the call for it.

    Copies within the device are the device's own work.
    """
    ways = [int(CopyDirection.HOST_TO_DEVICE), int(CopyDirection.DEVICE_TO_HOST)]
    return merge_all(
        [
            events.filter(pl.col("direction").is_in(ways)),
            gaps.filter(pl.col("cause").cast(pl.String) == "memcpy"),
        ]
    )


_UNDIVIDED = 0.01
"""Of the window: more time of which it is not known whether the device worked leaves both open."""


def find_found(diagnosis: Diagnosis) -> Shares:
    """The same from the device's side of a diagnosis, of the time between marks.

    By what the device is behind the host, the host's window begins earlier.
    """
    told = diagnosis.device_budget
    known = 0.0 if told is None else 1 - told.share_of("unknown")
    if told is None or known <= 0:
        return Shares()
    shares = {
        part: told.share_of(part) / known
        for part in ("waiting for input", "waiting for the host", "pauses", "copies", "host-paced")
    }
    input_wait, host = shares["waiting for input"], shares["waiting for the host"]
    is_known = shares["host-paced"] <= _UNDIVIDED
    return Shares(
        device_idle=input_wait + host + shares["pauses"] if is_known else None,
        input_wait=input_wait,
        copies=shares["copies"],
        launch_bound=host if is_known else None,
    )
