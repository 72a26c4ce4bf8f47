"""Shapes of operators out of an execution trace that was recorded beside a Kineto trace.

PyTorch's ExecutionTraceObserver (https://github.com/mlcommons/chakra reads the same JSON) writes
every operator with its inputs, and no times. The n-th operator of a name is the n-th of that name
in the timeline, if both hold equally many of it: only then are its shapes taken.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from fuelline.ingest.kineto.events import OpArgs
from fuelline.ingest.kineto.shapes import COUNTERS, count_work
from fuelline.ingest.unpack import read_blocks, say_byte
from fuelline.schema.errors import InputError
from fuelline.schema.run.trace import HostKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from fuelline.ingest.kineto.shapes import Work

_RANK = re.compile(r"(?:rank|worker)[-_]?(\d{1,6})|[-_.](\d{1,6})\.(?:et\.)?json", re.IGNORECASE)
_TENSOR = re.compile(r"^Tensor\((.+)\)$")


class _NodeInputs(msgspec.Struct, frozen=True):
    values: list[Any] = []
    shapes: list[Any] = []
    types: list[Any] = []


class _ExecutionNode(msgspec.Struct, frozen=True):
    """Since schema 1.0.3 inputs are an object, before they stood beside each other."""

    id: int = 0
    name: str = ""
    inputs: Any = None
    input_shapes: list[Any] = []
    input_types: list[Any] = []


class _Execution(msgspec.Struct, frozen=True):
    nodes: list[_ExecutionNode] = []


Works = dict[str, list["Work"]]
"""By operator what each of its calls works, in order."""


def is_execution_trace(head: bytes) -> bool:
    """PyTorch's and Chakra's: operators with their shapes, and no times of the device."""
    return head.lstrip().startswith(b"{") and b'"schema"' in head and b'"nodes"' in head


def read_works(path: Path, advance: Callable[[int], None]) -> Works:
    """The operators whose work can be counted."""
    data = b"".join(read_blocks(path, advance))
    try:
        nodes = msgspec.json.decode(data, type=_Execution).nodes
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{path}: an execution trace that is damaged or cut short, before "
            f"{say_byte(path, len(data))} ({str(error)[:200]}). Nothing was imported. Leave it "
            "out, or copy it again."
        ) from None
    works: Works = defaultdict(list)
    for node in sorted(nodes, key=lambda node: node.id):
        if node.name in COUNTERS:
            works[node.name].append(count_work(node.name, _arguments(node)))
    return works


def find_rank(path: Path) -> int | None:
    """As its name says."""
    found = _RANK.search(path.name)
    return None if found is None else int(found[1] or found[2])


def fill(
    ops: pl.DataFrame, host: pl.DataFrame, texts: Mapping[int, str], works: Works
) -> tuple[pl.DataFrame, int]:
    """Operators with the work that was not recorded with them, and how many got theirs.

    | start_ns | flops |  and two of `aten::mm` in the execution trace  ->  | start_ns | flops |
    | 100      |       |                                                    | 100      | 2e9   |
    | 300      |       |                                                    | 300      | 4e9   |
    """
    known = {number: text for number, text in texts.items() if text in works}
    named = (
        host.filter((pl.col("kind") == int(HostKind.OP)) & pl.col("name").is_in(list(known)))
        .select("start_ns", "end_ns", "name")
        .unique(["start_ns", "end_ns"], keep="first")
    )
    whole = ops.with_row_index("row").join(named, on=["start_ns", "end_ns"], how="left")
    parts = []
    for number, text in known.items():
        mine = whole.filter(pl.col("name") == number).sort("start_ns", "row")
        if mine.height != len(works[text]) or not mine["flops"].is_null().any():
            continue
        columns = {
            f"{name}_told": [work[place] for work in works[text]]
            for place, name in enumerate(("flops", "least_bytes", "dtype"))
        }
        parts.append(mine.select("row").with_columns(_told(columns)))
    if not parts:
        return ops, 0
    merged = whole.join(pl.concat(parts), on="row", how="left", maintain_order="left")
    lacking = pl.col("flops").is_null() & pl.col("flops_told").is_not_null()
    count = merged.filter(lacking).height
    told = [
        pl.when(lacking).then(pl.col(f"{name}_told")).otherwise(pl.col(name)).alias(name)
        for name in ("flops", "least_bytes", "dtype")
    ]
    return merged.with_columns(told).select(ops.columns), count


def _told(columns: Mapping[str, Sequence[Any]]) -> list[pl.Series]:
    kinds = {"flops_told": pl.Float64, "least_bytes_told": pl.Float64, "dtype_told": pl.String}
    return [pl.Series(name, values, kinds[name]) for name, values in columns.items()]


def _arguments(node: _ExecutionNode) -> OpArgs:
    """As Kineto writes them with `record_shapes`."""
    try:
        said = msgspec.convert(node.inputs, _NodeInputs) if isinstance(node.inputs, dict) else None
    except msgspec.ValidationError:
        said = None
    shapes, types, values = (
        (said.shapes, said.types, said.values)
        if said is not None
        else (node.input_shapes, node.input_types, node.inputs)
    )
    kinds = [found[1] if (found := _TENSOR.match(str(kind))) else str(kind) for kind in types]
    words = [_word(value) for value in values] if isinstance(values, list) else []
    dims, names, concrete = (msgspec.json.encode(each) for each in (shapes, kinds, words))
    return OpArgs(dims=msgspec.Raw(dims), types=msgspec.Raw(names), concrete=msgspec.Raw(concrete))


def _word(value: Any) -> str:
    """`[1, 1]`, `False`: an argument as text."""
    if isinstance(value, list):
        return msgspec.json.encode(value).decode("utf-8", "backslashreplace")
    return str(value)
