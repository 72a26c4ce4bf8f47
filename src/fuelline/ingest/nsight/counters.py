"""Counters that Nsight sampled from the chip (`--gpu-metrics-devices`), where a report has them.

    GPU_METRICS              timestamp  typeId  metricId  value     (percent, whole numbers)
    TARGET_INFO_GPU_METRICS  typeId  metricId  metricName

The low byte of `typeId` is the device. Names vary a little from version to version, so that they
are told by what they begin with. Only those that are rungs of the ladder are kept, under the names
that counters of DCGM have.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import polars as pl

from fuelline.timeline.tables import MOST_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuelline.ingest.nsight.database import Database

VALUES, NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
_KEPT = (
    ("sms active", "gpm.sm_frac"),
    ("sm active", "gpm.sm_frac"),
    ("tensor active", "gpm.tensor_frac"),
    ("sm instructions/tensor active", "gpm.tensor_frac"),
)
_NEEDED = {VALUES: {"timestamp", "typeId", "metricId", "value"}}
_NEEDED[NAMES] = {"typeId", "metricId", "metricName"}
_PART_ROWS = 100_000
_PERCENT = 100.0


def read_counters(database: Database) -> Iterator[pl.DataFrame]:
    """Parts of the `counters` table; none if nothing was sampled."""
    if any(not columns <= database.columns(table) for table, columns in _NEEDED.items()):
        return
    known = _find_names(database)
    query = f"SELECT timestamp, typeId, metricId, value FROM {VALUES}"
    rows = database.select(query, VALUES)
    while part := list(islice(rows, _PART_ROWS)):
        kept = [
            (type_id & 0xFF, at_ns, known[type_id, metric], value / _PERCENT)
            for at_ns, type_id, metric, value in part
            if (type_id, metric) in known and _is_sound(at_ns, value)
        ]
        if kept:
            columns = {"device": pl.Int32, "at_ns": pl.Int64, "name": pl.String}
            yield pl.DataFrame(kept, schema={**columns, "value": pl.Float64}, orient="row")


def _find_names(database: Database) -> dict[tuple[int, int], str]:
    rows = database.select(f"SELECT typeId, metricId, metricName FROM {NAMES}", NAMES)
    return {
        (type_id, metric): ours
        for type_id, metric, name in rows
        for begins, ours in _KEPT
        if isinstance(type_id, int)
        and isinstance(metric, int)
        and str(name).lower().startswith(begins)
    }


def _is_sound(at_ns: object, value: object) -> bool:
    is_time = isinstance(at_ns, int) and abs(at_ns) < MOST_NS
    return is_time and isinstance(value, (int, float)) and 0 <= value <= _PERCENT
