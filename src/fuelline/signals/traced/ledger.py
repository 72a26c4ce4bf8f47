"""Where each device's wall time went: every moment once, to the first part that fits.

A ledger is kept from a device's first event to its last; beside it, the parts of its window
(`window.py`), which may begin before the first event.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from fuelline.schema.parts import LEDGER_PARTS, LedgerPart
from fuelline.schema.run.trace import DeviceLedger
from fuelline.signals.traced.gaps import PART
from fuelline.signals.traced.kernels.lane import COMPUTE, COPY
from fuelline.signals.traced.kernels.names import COMMUNICATION
from fuelline.timeline.intervals import (
    SPAN,
    intersect,
    merge,
    partition,
    span_of,
    subtract,
    total_ns,
)

if TYPE_CHECKING:
    from fuelline.signals.traced.collectives import TracedCollectives
    from fuelline.signals.traced.gaps import Gaps
    from fuelline.signals.traced.kernels.lane import DeviceLane

_BUSY_PARTS: tuple[LedgerPart, ...] = (
    "useful compute",
    "exposed transfer",
    "waiting for a peer",
    "undivided communication",
    "copies",
)


@dataclass(frozen=True)
class Account:
    """One device's ledger with what it was made of."""

    ledger: DeviceLedger
    events: pl.DataFrame
    gaps: Gaps
    pieces: pl.DataFrame
    """| start_ns | end_ns | part |: the busy time, every moment once, in order."""
    window_ns: tuple[int, int]
    parts_ns: dict[LedgerPart, int]
    """Of the window; they sum to its length."""

    @property
    def wall_ns(self) -> int:
        """How long the window is."""
        return self.window_ns[1] - self.window_ns[0]

    @property
    def idle(self) -> pl.DataFrame:
        """| start_ns | end_ns | cause | part | of the window."""
        return _clip(self.gaps.pieces, *self.window_ns)

    def all_pieces(self) -> pl.DataFrame:
        """The same with the idle time, so that nothing is left out."""
        columns = ("start_ns", "end_ns", "part")
        busy, idle = self.pieces.select(columns), self.gaps.pieces.select(columns)
        return pl.concat([busy, idle]).sort("start_ns")

    def usual(self) -> Account:
        """The same with no work of the host's own told from its launching."""
        ledger, gaps = self.ledger, self.gaps.usual()
        end_ns = ledger.start_ns + ledger.wall_ns
        parts_ns = _add_up(self.pieces, gaps, ledger.start_ns, end_ns)
        return dataclasses.replace(
            self,
            gaps=gaps,
            ledger=msgspec.structs.replace(ledger, parts_ns=parts_ns),
            parts_ns=_add_up(self.pieces, gaps, *self.window_ns),
        )


def keep_account(
    lane: DeviceLane,
    device: int,
    gaps: Gaps,
    matched: TracedCollectives,
    window_ns: tuple[int, int],
) -> Account:
    """The ledger of one device of a rank, whose idle time is explained already."""
    events = lane.of(device)
    busy = subtract(span_of(events), gaps.gaps)
    spans = events.select("row", *SPAN, "family")
    compute = merge(spans.filter(pl.col("family") == COMPUTE))
    talks = spans.filter(pl.col("family") == COMMUNICATION)
    copies = merge(spans.filter(pl.col("family") == COPY))
    pieces = _busy_pieces(busy, [compute, *_split(talks, lane.rank, matched), copies])
    start_ns, end_ns = int(events["start_ns"].min()), int(events["end_ns"].max())  # type: ignore[arg-type]
    communication = merge(talks)
    ledger = DeviceLedger(
        rank=lane.rank,
        device=device,
        start_ns=start_ns,
        wall_ns=end_ns - start_ns,
        parts_ns=_add_up(pieces, gaps, start_ns, end_ns),
        hidden_communication_ns=total_ns(intersect(compute, communication)),
        communication_ns=total_ns(communication),
        busy_ns=total_ns(busy),
    )
    ledger.check()
    return Account(ledger, events, gaps, pieces, window_ns, _add_up(pieces, gaps, *window_ns))


def _add_up(pieces: pl.DataFrame, gaps: Gaps, start_ns: int, end_ns: int) -> dict[LedgerPart, int]:
    """All parts of a stretch of time."""
    parts = dict.fromkeys(LEDGER_PARTS, 0)
    for frame in (pieces, gaps.pieces):
        for part, spent in _sums(_clip(frame, start_ns, end_ns)).items():
            parts[part] += spent
    return parts


def _clip(pieces: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    """What of these lies within a stretch of time; nothing is copied if all of it does."""
    inside = (pieces["start_ns"] >= start_ns) & (pieces["end_ns"] <= end_ns)
    if inside.all():
        return pieces
    touching = (pl.col("end_ns") > start_ns) & (pl.col("start_ns") < end_ns)
    return pieces.filter(touching).with_columns(pl.col(SPAN).clip(start_ns, end_ns))


def _split(talks: pl.DataFrame, rank: int, matched: TracedCollectives) -> list[pl.DataFrame]:
    """Communication in the order of _BUSY_PARTS, split where its collective was matched."""
    met = matched.frame.filter(pl.col("rank") == rank).select("row", "shortest_ns")
    talks = talks.join(met, on="row", how="left")
    known = talks.filter(pl.col("shortest_ns").is_not_null()).with_columns(
        (pl.col("end_ns") - pl.col("shortest_ns")).alias("arrived_ns")
    )
    return [
        merge(known.select(pl.col("arrived_ns").alias("start_ns"), "end_ns")),
        merge(known.select("start_ns", pl.col("arrived_ns").alias("end_ns"))),
        merge(talks.filter(pl.col("shortest_ns").is_null())),
    ]


def _busy_pieces(busy: pl.DataFrame, sets: list[pl.DataFrame]) -> pl.DataFrame:
    names = dict(enumerate(_BUSY_PARTS))
    part = pl.col("layer").replace_strict(names, return_dtype=PART)
    return partition(busy, sets).select(*SPAN, part.alias("part"))


def _sums(pieces: pl.DataFrame) -> dict[LedgerPart, int]:
    spent = pl.col("end_ns") - pl.col("start_ns")
    return dict(pieces.group_by("part").agg(spent.sum().alias("ns")).iter_rows())
