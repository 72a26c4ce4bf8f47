"""What is wrong with an Nsight export: nothing traced, graphs as one block, events lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fuelline.ingest.spans import describe_insane
from fuelline.schema.names import clean
from fuelline.schema.run.trace import Quality

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuelline.ingest.nsight.database import Database

_LOST = re.compile(r"\b(dropped|lost|incomplete|overflow\w*)\b", re.IGNORECASE)
_MOST_TEXT = 200


def find_problems(database: Database, rows: Mapping[str, int], insane: int) -> list[Quality]:
    """All that the tables themselves tell; `rows` are those of the tables that are there."""
    found = [
        Quality(problem=text, forbids="totals over the whole trace", code="truncated")
        for text in database.problems
    ]
    if not rows.get("CUPTI_ACTIVITY_KIND_KERNEL") and not rows.get(_GRAPHS):
        found.append(
            Quality(
                problem="no CUDA kernel was recorded (nsys profile without --trace=cuda, or the "
                "export was restricted to other tables)",
                forbids="anything about the device; it must not be called idle",
                code="no-device",
            )
        )
    if rows.get(_GRAPHS):
        found.append(
            Quality(
                problem=f"{rows[_GRAPHS]} launches of CUDA graphs were recorded as one block each "
                "(`--cuda-graph-trace=node` records their kernels)",
                forbids="kernel classes, SM fill, and telling computing from communicating inside",
                code="graph-blocks",
            )
        )
    return [*found, *describe_insane(insane), *_read_diagnostics(database)]


_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"


def _read_diagnostics(database: Database) -> list[Quality]:
    """The profiler's own warnings about losses."""
    if "text" not in database.columns("DIAGNOSTIC_EVENT"):
        return []
    texts = database.select(
        "SELECT DISTINCT text FROM DIAGNOSTIC_EVENT LIMIT 1000", "DIAGNOSTIC_EVENT"
    )
    return [
        Quality(
            problem=f"the profiler says: {clean(str(text))[:_MOST_TEXT]}",
            forbids="totals over the whole trace",
            code="dropped",
        )
        for (text,) in texts
        if _LOST.search(str(text))
    ][:5]
