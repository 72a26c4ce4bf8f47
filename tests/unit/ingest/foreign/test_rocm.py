"""ROCm's own profiler: its JSON and its databases, as its documentation describes them.

No published recording was at hand: these files are made after the fields of rocprofv3's output and
the tables that its `generateRocpd` fills.
"""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from fuelline.ingest.formats import find_importer
from fuelline.ingest.rocm import Rocpd, Rocprof
from fuelline.schema.run.trace import CopyDirection, DeviceKind, HostKind
from tests.unit.ingest.foreign.reading import read

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.ingest.foreign.reading import Read

_GEMM = "Cijk_Ailk_Bljk_BBS_BH_MT128x128x64_MI16x16x16x1"
_CPU, _GPU0, _GPU1 = 1, 2, 3


def size(x: int, y: int = 1) -> dict[str, int]:
    return {"x": x, "y": y, "z": 1}


def record(kind: int, operation: int, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {
        "size": 64,
        "kind": kind,
        "operation": operation,
        "correlation_id": {"internal": 5, "external": 0},
        "start_timestamp": start,
        "end_timestamp": end,
        "thread_id": 77,
        **more,
    }


def written() -> bytes:
    """What `--output-format json` writes of a product, a copy and the call before them."""
    dispatch = {
        "agent_id": {"handle": _GPU1},
        "queue_id": {"handle": 4},
        "kernel_id": 9,
        "dispatch_id": 1,
        "workgroup_size": size(256),
        "grid_size": size(4096, 2),
    }
    ends = {"dst_agent_id": {"handle": _GPU0}, "src_agent_id": {"handle": _CPU}, "bytes": 4096}
    tool = {
        "metadata": {"pid": 31, "init_time": 1, "fini_time": 2},
        "agents": [
            {"id": {"handle": _CPU}, "type": 1, "name": "AMD EPYC"},
            *(
                {
                    "id": {"handle": gpu},
                    "type": 2,
                    "name": "gfx942",
                    "product_name": "AMD Instinct MI300X",
                    "cu_count": 304,
                }
                for gpu in (_GPU0, _GPU1)
            ),
        ],
        "strings": {
            "buffer_records": [
                {"kind": "NONE", "operations": []},
                {"kind": "HIP_RUNTIME_API", "operations": ["hipMalloc", "hipModuleLaunchKernel"]},
                {"kind": "MEMORY_COPY", "operations": ["NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
            ]
        },
        "kernel_symbols": [{"kernel_id": 9, "formatted_kernel_name": _GEMM, "kernel_name": "x.kd"}],
        "buffer_records": {
            "kernel_dispatch": [record(0, 0, 2000, 5000, dispatch_info=dispatch)],
            "memory_copy": [record(2, 1, 100, 900, **ends)],
            "hip_api": [record(1, 1, 1000, 1500)],
            "marker_api": [record(0, 0, 0, 6000, args={"message": "step 1"})],
        },
    }
    return json.dumps({"rocprofiler-sdk-tool": [tool]}).encode()


def database(path: Path, *, version: int = 3) -> Path:
    """The same as a database; version 4 keeps times apart."""
    own = "_0190aa11_22bb"
    spans = {"kernel": (2000, 5000), "copy": (100, 900), "call": (1000, 1500)}
    times = "start, end"
    if version == 4:
        times = "start_id, end_id"
        spans = {"kernel": (1, 2), "copy": (3, 4), "call": (5, 6)}
    sizes = ", ".join(f"{what}_size_{axis}" for what in ("workgroup", "grid") for axis in "xyz")
    gpu = ("GPU", "gfx942", "AMD Instinct MI300X")
    copy_names = "name_id, dst_agent_id, src_agent_id, size, queue_id, stream_id, event_id"
    tables: dict[str, tuple[str, list[tuple[object, ...]]]] = {
        "rocpd_string": (
            "id, string",
            [(1, "hipModuleLaunchKernel"), (2, "MEMORY_COPY_HOST_TO_DEVICE")],
        ),
        "rocpd_info_agent": (
            "id, type, name, product_name",
            [(1, "CPU", "AMD EPYC", ""), (2, *gpu), (3, *gpu)],
        ),
        "rocpd_info_kernel_symbol": ("id, kernel_name, display_name", [(9, "x.kd", _GEMM)]),
        "rocpd_event": ("id, stack_id", [(1, 5), (2, 5), (3, 6)]),
        "rocpd_kernel_dispatch": (
            f"id, tid, agent_id, kernel_id, queue_id, stream_id, {times}, {sizes}, event_id",
            [(1, 77, 3, 9, 4, 4, *spans["kernel"], 256, 1, 1, 4096, 2, 1, 1)],
        ),
        "rocpd_memory_copy": (
            f"id, tid, {times}, {copy_names}",
            [(1, 77, *spans["copy"], 2, 2, 1, 4096, 4, 4, 3)],
        ),
        "rocpd_region": (
            f"id, tid, {times}, name_id, event_id",
            [(1, 77, *spans["call"], 1, 2)],
        ),
    }
    if version == 4:
        moments = enumerate((2000, 5000, 100, 900, 1000, 1500), 1)
        tables["rocpd_timestamp"] = ("id, value", list(moments))
    with sqlite3.connect(path) as connection:
        for name, (columns, rows) in tables.items():
            connection.execute(f'CREATE TABLE "{name}{own}" ({columns})')
            holes = ", ".join("?" * len(rows[0]))
            connection.executemany(f'INSERT INTO "{name}{own}" VALUES ({holes})', rows)
    connection.close()
    return path


def check(result: Read) -> None:
    """A product of 32 blocks on the second device, and a copy to the first."""
    kernel, copy = sorted(result.table("device").to_dicts(), key=lambda row: row["kind"])
    assert (kernel["text"], kernel["device"], kernel["stream"]) == (_GEMM, 1, 4)
    assert (kernel["start_ns"], kernel["end_ns"]) == (2000, 5000)
    assert (kernel["blocks"], kernel["threads"], kernel["correlation"]) == (32, 256, 5)
    assert (copy["kind"], copy["device"], copy["size_bytes"]) == (DeviceKind.COPY, 0, 4096)
    assert copy["direction"] == CopyDirection.HOST_TO_DEVICE
    calls = [row for row in result.table("host").to_dicts() if row["kind"] == HostKind.RUNTIME]
    assert [(row["text"], row["correlation"]) for row in calls] == [("hipModuleLaunchKernel", 5)]
    assert result.imported is not None
    assert [chip.name for chip in result.imported.ranks[0].chips] == 2 * ["AMD Instinct MI300X"]


def test_the_json_has_kernels_copies_and_calls(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_bytes(written())
    result = read(Rocprof(), tmp_path / "out.json")
    check(result)
    marks = [row for row in result.table("host").to_dicts() if row["kind"] == HostKind.ANNOTATION]
    assert [row["text"] for row in marks] == ["step 1"]


@pytest.mark.parametrize("version", [3, 4])
def test_a_database_has_the_same_in_each_version(tmp_path: Path, version: int) -> None:
    path = database(tmp_path / "out.db", version=version)
    found = find_importer(path)
    assert found is not None
    assert found.format == "rocpd"
    check(read(Rocpd(), path))


def test_several_processes_in_one_file_are_ranks(tmp_path: Path) -> None:
    both = json.loads(written())
    both["rocprofiler-sdk-tool"] *= 2
    (tmp_path / "out.json").write_text(json.dumps(both))
    result = read(Rocprof(), tmp_path / "out.json")
    assert result.imported is not None
    assert [each.rank for each in result.imported.ranks] == [0, 1]
    assert result.table("device", 1).height == 2
