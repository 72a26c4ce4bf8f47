"""The compiled scanner and the readers in Python make the same tables of the same text.

Of usual, strange and damaged text: either both refuse it, or all rows are equal and in the same
order (names are compared as texts, since their numbers depend on who met them first).
tests/integration/test_scanner.py does the same with real traces, and with events of any shape.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from bench.fuzz_importers import damage

from fuelline.ingest.kineto import scan, split
from tests.unit.ingest.kineto.texts import call, kernel, lay_out, mark, op
from tests.unit.ingest.kineto.twice import both

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    scan.find_compiled() is None, reason="the package was built without the compiled scanner"
)


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
