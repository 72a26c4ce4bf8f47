"""Shapes out of execution traces, in the layouts that PyTorch has written so far."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fuelline.ingest import find_sources
from fuelline.schema.errors import InputError
from tests.unit.ingest.kineto.texts import load, write

if TYPE_CHECKING:
    from pathlib import Path

SHAPES = [[64, 32], [32, 16]]
TYPES = ["Tensor(float)", "Tensor(float)"]
FLOPS = 2.0 * 64 * 32 * 16


def op(at: int, **args: Any) -> dict[str, Any]:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "dur": 5.0}
    return {**event, "ts": float(at), "args": {"External id": at, **args}}


def node(number: int, *, is_old: bool = False) -> dict[str, Any]:
    if is_old:
        return {
            "id": number,
            "name": "aten::mm",
            "inputs": [[1], [2]],
            "input_shapes": SHAPES,
            "input_types": TYPES,
        }
    inputs = {"values": [[1], [2]], "shapes": SHAPES, "types": TYPES}
    return {"id": number, "name": "aten::mm", "inputs": inputs}


def told(path: Path, *nodes: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": nodes}))
    return path


@pytest.mark.parametrize("is_old", [True, False])
def test_operators_without_shapes_get_those_of_the_execution_trace(
    tmp_path: Path, *, is_old: bool
) -> None:
    trace = write(tmp_path / "rank0.json", [op(10), op(20)])
    nodes = [node(number, is_old=is_old) for number in (7, 5)]
    beside = told(tmp_path / "et.json", *nodes)
    assert load(tmp_path, trace).table("ops", 0)["flops"].null_count() == 2
    ops = load(tmp_path, trace, beside).table("ops", 0)
    assert ops["flops"].to_list() == [FLOPS, FLOPS]
    assert ops["dtype"].to_list() == ["float", "float"]


def test_an_execution_trace_of_other_steps_is_not_believed(tmp_path: Path) -> None:
    trace = write(tmp_path / "rank0.json", [op(10), op(20)])
    read = load(tmp_path, trace, told(tmp_path / "et.json", node(5)))
    assert read.table("ops", 0)["flops"].null_count() == 2
    assert [each.code for each in read.facts.quality] == ["execution-trace"]


def test_of_several_ranks_each_gets_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(2):
        write(folder / f"rank{rank}.json", [op(10)] * (rank + 1))
        told(folder / f"et_rank{rank}.json", *[node(5 + each) for each in range(rank + 1)])
    read = load(tmp_path, folder)
    assert [read.table("ops", rank)["flops"].null_count() for rank in (0, 1)] == [0, 0]


def test_alone_it_is_called_what_it_is(tmp_path: Path) -> None:
    beside = told(tmp_path / "et.json", node(5))
    with pytest.raises(InputError, match="together with the profiler's trace"):
        find_sources([beside])


def test_a_damaged_one_is_refused_with_its_byte(tmp_path: Path) -> None:
    trace = write(tmp_path / "rank0.json", [op(10)])
    beside = told(tmp_path / "et.json", node(5))
    beside.write_text(beside.read_text()[:-9])
    with pytest.raises(InputError, match="byte"):
        load(tmp_path, trace, beside)
