"""Damaged files of every format: an import or a clear refusal, and never half a run."""

from __future__ import annotations

import gzip
import json
import random
from typing import TYPE_CHECKING

import polars as pl
import pytest
from bench.fuzz_importers import SOURCES, damage

from fuelline import pipeline
from fuelline.ingest import import_trace
from fuelline.ingest.formats import IMPORTERS, find_importer
from fuelline.schema.errors import FuellineError, InputError
from tests.unit.ingest.foreign import (
    test_ascend,
    test_dcgm,
    test_perfetto,
    test_rocm,
    test_straggler,
    test_xplane,
)
from tests.unit.ingest.foreign.nsight_maker import make
from tests.unit.ingest.foreign.reading import RUN

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = (
    "ascend",
    "dcgm",
    "kineto",
    "nsys",
    "perfetto",
    "rocpd",
    "rocprof",
    "straggler",
    "xplane",
)
KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5.5, "dur": 2}
CALL = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1}


def whole(kind: str, folder: Path) -> bytes:
    """A small sound file of a format."""
    if kind in _IN_MEMORY:
        return _IN_MEMORY[kind]()
    if kind == "rocpd":
        path = test_rocm.database(folder / "made.db")
    elif kind == "nsys":
        path = make(folder / "made.sqlite")
    elif kind == "straggler":
        path = folder / "made.parquet"
        rows, columns = test_straggler.ROWS, test_straggler.COLUMNS
        pl.DataFrame(rows, schema=columns, orient="row").write_parquet(path)
    else:
        events = [
            {**KERNEL, "args": {"device": 0, "stream": 7, "correlation": 3}},
            {**CALL, "ts": 1, "dur": 1, "args": {"correlation": 3}},
        ]
        return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    data = path.read_bytes()
    path.unlink()
    return data


_IN_MEMORY = {
    "ascend": lambda: b'{"traceEvents": %b}' % test_ascend.made(),
    "dcgm": (test_dcgm.scrape(91) + test_dcgm.scrape(50)).encode,
    "perfetto": test_perfetto.written,
    "rocprof": test_rocm.written,
    "xplane": test_xplane.space,
}


def attempt(folder: Path, data: bytes, *, partial: bool) -> str:
    """Import and diagnose; the refusal, or nothing. Whatever happens, no half run is left."""
    path, run_dir = folder / "given", folder / "run"
    path.write_bytes(data)
    said = ""
    try:
        pipeline.find_sources([path])
        import_trace([path], run_dir, RUN, partial=partial, jobs=1)
        pipeline.diagnose_as_json(run_dir)
    except FuellineError as error:
        said = str(error)
        assert "given" in said or run_dir.exists()
    assert {each.name for each in folder.iterdir()} <= {"given", "run"}
    return said


def test_no_format_is_left_out() -> None:
    known = {importer.format for importer in IMPORTERS}
    assert set(FORMATS) == known, "FORMATS here"
    assert set(SOURCES) == known, "SOURCES of bench/fuzz_importers.py"


@pytest.mark.parametrize("kind", FORMATS)
def test_a_sound_file_is_told_by_its_content(kind: str, tmp_path: Path) -> None:
    data = whole(kind, tmp_path)
    assert attempt(tmp_path, data, partial=False) == ""
    found = find_importer(tmp_path / "given")
    assert found is not None
    assert found.format == kind


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("seed", range(12))
def test_random_damage_is_survived(kind: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(f"{kind} {seed}")
    others = [whole(each, tmp_path) for each in FORMATS]
    data = damage(whole(kind, tmp_path), chance, others)
    packed = gzip.compress(data) if seed % 4 == 0 else data
    attempt(tmp_path, packed, partial=bool(seed % 2))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_cut_at_many_bytes_is_refused_and_leaves_nothing(kind: str, tmp_path: Path) -> None:
    data = whole(kind, tmp_path)
    sizes = sorted({1, 2, 7, *(len(data) * part // 16 for part in range(1, 16)), len(data) - 1})
    for size in sizes:
        folder = tmp_path / str(size)
        folder.mkdir()
        said = attempt(folder, data[:size], partial=False)
        complete = kind == "dcgm" and data[:size].endswith(b"\n")
        assert said or complete or kind == "xplane", size


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 100,
        b"<!DOCTYPE html><html>404</html>",
        bytes(range(256)),
        b"{}",
        b"[]",
        b"PK\3\4",
    ],
)
def test_junk_is_refused_by_what_it_looks_like(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_bytes(data)
    with pytest.raises(InputError, match="given"):
        pipeline.find_sources([path])


def test_a_value_of_any_length_is_quoted_in_part(tmp_path: Path) -> None:
    """Found by bench/fuzz_importers.py: Python's own message quotes all of what is no number."""
    text = test_dcgm.scrape(91).replace(" 91", " " + "9x" * 50_000, 1)
    said = attempt(tmp_path, text.encode(), partial=False)
    assert "line" in said
    assert len(said) < 500
