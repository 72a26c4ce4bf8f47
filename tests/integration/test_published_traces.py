"""Real traces: every one imports, and its totals are those of an independent slow reader."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from fuelline.schema.run.trace import DeviceKind
from tests.unit.ingest.kineto.texts import REAL, load

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

FILES = sorted(REAL.rglob("*.json.gz"))
if not FILES:
    pytest.skip(f"the published traces are not in {REAL}", allow_module_level=True)

DEVICE = {"kernel": DeviceKind.KERNEL, "Kernel": DeviceKind.KERNEL}
DEVICE |= {"gpu_memcpy": DeviceKind.COPY, "Memcpy": DeviceKind.COPY}
DEVICE |= {"gpu_memset": DeviceKind.SET, "Memset": DeviceKind.SET}
NOT_HOST = {*DEVICE, "Trace", "gpu_user_annotation", "cuda_sync", "cuda_profiler_range"}


def read_slowly(path: Path) -> list[dict[str, Any]]:
    """All events with plain json, numbers as they are written."""
    with gzip.open(path) as file:
        return json.load(file, parse_float=str)["traceEvents"]  # type: ignore[no-any-return]


def nanos(value: Any) -> int:
    return round(Decimal(str(value)) * 1000)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(REAL)))
def test_totals_are_those_of_a_slow_reader(tmp_path: Path, path: Path) -> None:
    events = [event for event in read_slowly(path) if event["ph"] == "X"]
    device = [event for event in events if event["cat"] in DEVICE]
    host = [event for event in events if event["cat"] not in NOT_HOST]
    trace = load(tmp_path, path)
    ours = trace.table("device", trace.ranks[0])
    assert ours.height == len(device)
    assert Counter(ours["kind"].to_list()) == Counter(int(DEVICE[each["cat"]]) for each in device)
    assert spans_of(ours) == Counter((nanos(e["ts"]), nanos(e["dur"])) for e in device)
    theirs = trace.table("host", trace.ranks[0])
    assert theirs.height == len(host)
    assert spans_of(theirs) == Counter((nanos(e["ts"]), nanos(e.get("dur", 0))) for e in host)
    texts = trace.texts(trace.ranks[0])
    assert Counter(texts[name] for name in ours["name"]) == Counter(e["name"] for e in device)


def spans_of(frame: pl.DataFrame) -> Counter[tuple[int, int]]:
    return Counter(zip(frame["start_ns"], frame["end_ns"] - frame["start_ns"], strict=True))
