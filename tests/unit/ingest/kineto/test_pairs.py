"""Beginnings and ends that stand apart are joined; what has only one of them is stated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fuelline.ingest.kineto import split
from tests.unit.ingest.kineto.texts import call, document, kernel, load

if TYPE_CHECKING:
    from pathlib import Path


def half(phase: str, ts: object, name: str = "", tid: int = 1) -> dict[str, Any]:
    return {"ph": phase, "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": ts}


def read(folder: Path, events: list[Any]) -> Any:
    path = folder / "trace.json"
    path.write_text(json.dumps(document(events)))
    return load(folder, path)


def spans(trace: Any) -> list[tuple[str, int, int]]:
    texts = trace.texts(0)
    rows = trace.table("host", 0).sort("start_ns").select("name", "start_ns", "end_ns").rows()
    return [(texts[name], start, end) for name, start, end in rows]


@pytest.mark.parametrize("piece_bytes", [64, 10**6])
def test_an_end_belongs_to_the_last_open_beginning_of_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr(split, "PIECE_BYTES", piece_bytes)
    events = [
        half("B", 10, "outer"),
        half("B", 12, "other", tid=2),
        half("B", 20.5, "inner"),
        half("E", 30),
        half("E", 31, tid=2),
        half("E", 50),
        kernel(40, 10, 1),
    ]
    trace = read(tmp_path, events)
    assert spans(trace) == [
        ("outer", 10_000, 50_000),
        ("other", 12_000, 31_000),
        ("inner", 20_500, 30_000),
    ]
    assert not trace.facts.quality


def test_times_of_an_epoch_with_fractions_are_joined_to_the_nanosecond(tmp_path: Path) -> None:
    begin, end = 1712195495519689.047, 1712195495519690.172
    text = json.dumps(document([half("B", "@"), half("E", "#"), kernel(40, 10, 1)]))
    path = tmp_path / "trace.json"
    path.write_text(text.replace('"@"', f"{begin:.3f}").replace('"#"', f"{end:.3f}"))
    ((_, start_ns, end_ns),) = spans(load(tmp_path, path))
    assert end_ns - start_ns == pytest.approx(1125, abs=130)  # the floats above are that coarse


def test_halves_without_a_counterpart_are_left_out_and_stated(tmp_path: Path) -> None:
    events = [half("E", 5), half("B", 10, "never ends"), call(20, 5, 1), kernel(40, 10, 1)]
    trace = read(tmp_path, events)
    assert [name for name, _, _ in spans(trace)] == ["cudaLaunchKernel"]
    (quality,) = trace.facts.quality
    assert quality.code == "unpaired"
    assert quality.problem.startswith("2 events")
