"""The compiled scanner and the readers in Python make the same tables of the same text.

Of every published trace, of events with fields of any shape, of damaged text: either both refuse
it, or all rows are equal and in the same order (names are compared as texts, since their numbers
depend on who met them first).
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from bench.fuzz_importers import damage
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fuelline.ingest.kineto import scan, split
from fuelline.schema.errors import InputError
from tests.unit.ingest.kineto.texts import REAL, call, kernel, lay_out, load, mark, op

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(
    scan.find_compiled() is None, reason="the package was built without the compiled scanner"
)
TRACES = sorted(path for path in REAL.rglob("*") if path.is_file()) if REAL.exists() else []


def read(path: Path, *, compiled: bool, partial: bool = False) -> dict[str, Any] | None:
    """All tables with names told; None if the file was refused."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        if not compiled:
            patch.setenv("FUELLINE_NO_SCANNER", "1")
        try:
            trace = load(Path(folder), path, partial=partial)
        except InputError:
            return None
        rank = trace.ranks[0]
        texts = trace.texts(rank)
        tables: dict[str, Any] = {
            table: _told(trace.table(table, rank), texts).rows()
            for table in ("device", "host", "steps", "ops")
        }
        return {**tables, "names": sorted(texts.values()), "facts": trace.facts}


def _told(frame: pl.DataFrame, texts: dict[int, str]) -> pl.DataFrame:
    names = [column for column in ("name", "group") if column in frame.columns]
    return frame.with_columns(
        pl.col(names).replace_strict(texts, default=None, return_dtype=pl.String)
    )


def both(path: Path, *, partial: bool = False) -> dict[str, Any] | None:
    """What both make of a file, which must be the same."""
    scanned = read(path, compiled=True, partial=partial)
    in_python = read(path, compiled=False, partial=partial)
    assert scanned == in_python
    return scanned


@pytest.mark.parametrize("path", TRACES, ids=lambda path: str(path.relative_to(REAL)))
def test_every_published_trace_gives_the_same_tables(path: Path) -> None:
    found = both(path)
    assert found is not None
    assert found["host"]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """For each piece, whether the scanner took all events of it."""
    said: list[bool] = []
    really = scan.Scan.read

    def listen(self: scan.Scan, piece: split.Piece) -> Any:
        batch = really(self, piece)
        said.append(batch is not None and not batch.complete and not batch.halves)
        return batch

    monkeypatch.setattr(scan.Scan, "read", listen)
    return said


USUAL = [
    mark(0, 1000, "ProfilerStep#7"),
    op(10.25, 30, **{"External id": 3, "Input Dims": [[4, 8], [8, 2]], "Input type": ["float"]}),
    call(20.125, 5, 1),
    kernel(40, 10.001, 1, "k<int>", **{"External id": 3, "registers per thread": 32}),
    kernel(41, 1, 2, "ncclKernel", **{"In msg nelems": 8, "dtype": "Float", "Seq": 4}),
    kernel(42, 1, 3, "ncclKernel", **{"Process Group Name": "group 0", "Seq": 5}),
    {**kernel(50, 2, 4, "Memcpy HtoD (Pageable -> Device)", bytes=4096), "cat": "gpu_memcpy"},
    {**op(60, 1, 'load \u00e4 \\ "x" \n'), "cat": "something new"},
    {"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": 20, "cat": "ac2g", "name": "ac2g"},
    {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "python"}},
    {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 3, "args": {"Bytes": -4}},
]


def test_the_scanner_takes_what_profilers_usually_write(tmp_path: Path, taken: list[bool]) -> None:
    path = tmp_path / "trace"
    path.write_bytes(lay_out(USUAL * 20, "kineto"))
    found = both(path)
    assert found is not None
    assert len(found["device"]) == 80
    assert taken == [True]


def test_strange_events_are_read_in_their_places(tmp_path: Path, taken: list[bool]) -> None:
    strange = [
        kernel(70, 1, 5, "text", bytes="0x10"),
        kernel(70.5, 1, 6, "group", **{"Process Group Name": 'gr\u00f6up "0"'}),
        {"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": 20, "cat": "ac2g", "name": "\u00e4"},
        {**kernel(71, 1), "ts": "71.5"},
        {**call(72, 1), "tid": "a thread"},
        {**call(73, 1), "args": None},
        {"ph": "B", "cat": "cpu_op", "name": "half", "pid": 1, "tid": 1, "ts": 74},
        {"ph": "E", "cat": "cpu_op", "name": "half", "pid": 1, "tid": 1, "ts": 75},
    ]
    path = tmp_path / "trace"
    path.write_bytes(lay_out([*USUAL, *strange, *USUAL], "kineto"))
    found = both(path)
    assert found is not None
    assert taken == [False]
    starts = [row[2] for row in found["device"] if row[5] == 0]
    assert starts == sorted(starts[: len(starts) // 2]) + starts[len(starts) // 2 :]
    assert "half" in found["names"]


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(0, 2**54),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(0, 2**44, places=3).map(float),
    st.sampled_from(["", "7", "007", "0x1f", "1e3", "12.5", "X", "\u00e4", 'a"b', "-1", "Float"]),
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4), max_leaves=6)
ARGS = st.dictionaries(
    st.sampled_from(
        ["External id", "external id", "device", "stream", "correlation", "bytes", "grid", "block",
         "registers per thread", "shared memory", "est. achieved occupancy %", "graph id", "Seq",
         "Process Group Name", "In msg nelems", "dtype", "Input Dims", "Input type", "other"]
    ),
    VALUES,
    max_size=5,
)  # fmt: skip
TIMES = st.one_of(
    st.integers(0, 2**53),
    st.integers(-(10**6), 10**6),
    st.decimals(-(10**6), 10**6, places=3).map(float),
    st.decimals(0, 10**6, places=5).map(float),
    st.integers(10**15, 10**15 + 10**6).map(lambda whole: f"{whole}.{whole % 1000:03}"),
)
EVENTS = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "X", "X", "X", "i", "B", "E", ""]), "ts": TIMES},
    optional={
        "cat": st.sampled_from(
            ["kernel", "gpu_memcpy", "cpu_op", "cuda_runtime", "Operator", "Kernel", "ac2g",
             "user_annotation", "python_function", "?", None, 3]
        ),
        "name": st.sampled_from(
            ["k", "aten::mm", "nccl:all_reduce", "ProfilerStep#4", "\u00e4\n", "", None, 5]
        ),
        "pid": SCALARS,
        "tid": SCALARS,
        "dur": st.one_of(TIMES, SCALARS),
        "args": st.one_of(ARGS, VALUES),
        "id": VALUES,
    },
)  # fmt: skip


def _write(event: dict[str, Any]) -> str:
    """As JSON; times that are text stand there as numbers, which a float could not hold."""
    start = event["ts"]
    text = json.dumps({**event, "ts": 0 if isinstance(start, str) else start}, ensure_ascii=False)
    return text.replace('"ts": 0', f'"ts": {start}', 1) if isinstance(start, str) else text


@settings(
    max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(st.lists(EVENTS, min_size=1, max_size=12), st.sampled_from([100, 10**6]))
@example([{"ph": "X", "cat": "kernel", "ts": 0.0005, "dur": 0.0005, "args": {}}], 10**6)
@example([{"ph": "X", "cat": "cpu_op", "ts": 8796093022208.5, "tid": 1, "dur": -1.0005}], 10**6)
@example(
    [{"ph": "X", "ts": 5, "tid": 1}, {"ph": "X", "ts": "1000000000000005.1239", "tid": 1}], 100
)
def test_events_of_any_shape_give_the_same_rows(events: list[Any], piece_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(split, "PIECE_BYTES", piece_bytes)
        path = Path(folder) / "trace"
        text = ",\n".join(_write(event) for event in events)
        path.write_text(f'{{"schemaVersion": 1, "traceEvents": [{text}]}}')
        both(path)


@pytest.mark.parametrize("first", range(0, 240, 30))
def test_damaged_text_gives_the_same_answer(tmp_path: Path, first: int) -> None:
    sound = lay_out(USUAL * 6, "kineto")
    for seed in range(first, first + 30):
        path = tmp_path / f"trace{seed}"
        path.write_bytes(damage(sound, random.Random(seed), [sound]))
        both(path, partial=bool(seed % 2))


def test_a_scanner_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan.find_compiled(), "LAYOUT", -1)
    assert scan.find_compiled() is None
