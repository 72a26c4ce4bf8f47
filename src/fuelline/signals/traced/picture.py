"""Accounts of an imported trace in, a picture over time out: a device's parts, all devices' lanes.

The columns are steps of the device that was idle longest, or where there are too few equal slices
of its window; the lanes below show every device against the same time.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import polars as pl

from fuelline.schema.diagnosis.picture import Lane, RunPicture
from fuelline.schema.parts import LEDGER_PARTS
from fuelline.signals.levels import find_levels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.parts import LedgerPart
    from fuelline.signals.traced.ledger import Account
    from fuelline.signals.traced.survey import Survey

SLICES = 512
MOST_LANES = 8
"""Devices with a lane of their own; the ledger has all of them."""
_BINS = 480
_FEWEST_STEPS = 2
_SERIES: dict[str, tuple[LedgerPart, ...]] = {
    "computing": ("useful compute",),
    "communicating": ("exposed transfer", "undivided communication", "waiting for a peer"),
    "copying": ("copies",),
}
"""Of a lane; what is left is idle."""


def picture_trace(survey: Survey) -> RunPicture | None:
    """None if no device did anything."""
    accounts = [each for each in survey.accounts if each.wall_ns > 0]
    if not accounts:
        return None
    shown = max(accounts, key=lambda account: account.wall_ns - account.ledger.busy_ns)
    edges = _find_edges(survey, shown)
    per: Literal["step", "slice"] = "slice" if edges is None else "step"
    edges = edges or _cut(*shown.window_ns, SLICES)
    bins = _cut(edges[0], edges[-1], _BINS)
    return RunPicture(
        start_s=0.0,
        seconds=(edges[-1] - edges[0]) / 1e9,
        levels=find_levels(_by_bucket(shown, edges), LEDGER_PARTS),
        bin_s=(edges[-1] - edges[0]) / 1e9 / _BINS,
        lanes=[_lane(each, bins) for each in accounts if _meets(each, bins)][:MOST_LANES],
        per=per,
        which=f"device {_name(shown)}",
    )


def _meets(account: Account, edges: Sequence[int]) -> bool:
    """Whether it is of the same time: clocks of other ranks may be of another day."""
    ledger = account.ledger
    return ledger.start_ns < edges[-1] and ledger.start_ns + ledger.wall_ns > edges[0]


def _find_edges(survey: Survey, account: Account) -> list[int] | None:
    """Where steps of this device's rank begin in its window; None if there are too few."""
    steps = survey.steps.get(account.ledger.rank)
    if steps is None or steps.spans.height < _FEWEST_STEPS or steps.overlap:
        return None
    start_ns, end_ns = account.window_ns
    inside = [
        at for at in steps.boundaries_ns.unique(maintain_order=True) if start_ns < at < end_ns
    ]
    return [start_ns, *inside, end_ns]


def _cut(start_ns: int, end_ns: int, pieces: int) -> list[int]:
    """Edges of equal pieces."""
    length = end_ns - start_ns
    return [start_ns + length * at // pieces for at in range(pieces + 1)]


def _by_bucket(account: Account, edges: Sequence[int]) -> pl.DataFrame:
    """A row per bucket with what each part took; where the ledger has nothing, it is not known."""
    frame = _spent(account, edges)
    length = pl.Series("length_ns", [end - at for at, end in pairwise(edges)])
    known = pl.sum_horizontal(pl.col(list(LEDGER_PARTS)))
    return (
        frame.with_columns(length)
        .with_columns((pl.col("unknown") + pl.col("length_ns") - known).alias("unknown"))
        .with_row_index("step")
        .with_columns(pl.col("step").cast(pl.Int64), is_step=pl.lit(value=True))
    )


def _spent(account: Account, edges: Sequence[int]) -> pl.DataFrame:
    """A row per stretch between edges, a column per part: nanoseconds."""
    pieces = account.all_pieces().with_columns(pl.col("part").cast(pl.String))
    marks = pl.DataFrame({"at_ns": edges}, schema={"at_ns": pl.Int64}).set_sorted("at_ns")
    columns = []
    for part in LEDGER_PARTS:
        own = pieces.filter(pl.col("part") == part).select(
            pl.col("start_ns").cast(pl.Int64),
            ns=(pl.col("end_ns") - pl.col("start_ns")).cast(pl.Int64),
        )
        before_ns = pl.col("ns").cum_sum() - pl.col("ns")
        own = own.with_columns(before_ns=before_ns).set_sorted("start_ns")
        inside = pl.min_horizontal(pl.col("at_ns") - pl.col("start_ns"), pl.col("ns"))
        met = marks.join_asof(own, left_on="at_ns", right_on="start_ns", coalesce=False)
        reached = met.select((pl.col("before_ns") + inside).fill_null(0)).to_series()
        columns.append(reached.diff().slice(1).alias(part))
    return pl.DataFrame(columns)


def _lane(account: Account, edges: Sequence[int]) -> Lane:
    spent = _spent(account, edges)
    width = max(1, edges[1] - edges[0])
    series: dict[str, list[float | None]] = {
        name: (spent.select(pl.sum_horizontal(*parts)).to_series() / width).round(3).to_list()
        for name, parts in _SERIES.items()
    }
    return Lane(name="device", unit="frac", series=series, is_stacked=True, which=_name(account))


def _name(account: Account) -> str:
    return f"{account.ledger.device} of rank {account.ledger.rank}"
