"""Small Nsight exports of both generations, made by hand."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

OWNER = (1 << 48) + (111 << 24)
OTHER = (1 << 48) + (112 << 24)
KERNEL = (
    "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, "
    "globalPid INTEGER, demangledName INTEGER, shortName INTEGER, registersPerThread INTEGER, "
    "gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, "
    "blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER"
)
COPY = (
    "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, "
    "globalPid INTEGER, bytes INTEGER, copyKind INTEGER"
)
RUNTIME = (
    "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, "
    "nameId INTEGER"
)
NVTX = "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, textId INTEGER"
GRAPH = (
    "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, "
    "globalPid INTEGER, graphId INTEGER"
)
CHIP = (
    "id INTEGER, name TEXT, smCount INTEGER, maxWarpsPerSm INTEGER, threadsPerWarp INTEGER, "
    "memoryBandwidth INTEGER"
)
STRINGS = [
    (1, "void gemm<float>(int)"),
    (2, "gemm"),
    (3, "cudaLaunchKernel_v7000"),
    (4, "step"),
    (5, "CUPTI: Buffer flush"),
]
TABLES: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "META_DATA_EXPORT": ("name TEXT, value TEXT", [("EXPORT_PRODUCT_VERSION", "2026.2")]),
    "StringIds": ("id INTEGER PRIMARY KEY, value TEXT", STRINGS),
    "TARGET_INFO_GPU": (
        CHIP,
        [(0, "NVIDIA H100", 132, 64, 32, 3_350_000_000_000)],
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        KERNEL,
        [
            (100, 200, 0, 7, 11, OWNER, 1, 2, 32, 4, 5, 1, 128, 2, 1, 1024, 16),
            (300, 450, 1, 9, 12, OTHER, 1, 2, 32, 4, 5, 1, 128, 2, 1, 0, 0),
        ],
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (COPY, [(210, 240, 0, 7, 13, OWNER, 4096, 1)]),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        RUNTIME,
        [
            (90, 95, 0, OWNER + 5, 11, 3),
            (89, 96, 67, OWNER + 5, 11, 2),
        ],
    ),
    "NVTX_EVENTS": (
        NVTX,
        [
            (50, 500, 59, None, OWNER + 5, 4),
            (60, 70, 59, "aten::view, op_id = 31, sizes = [[2]]", OWNER + 5, None),
            (60, None, 34, "a mark", OWNER + 5, None),
        ],
    ),
    "PROFILER_OVERHEAD": (
        "start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER",
        [(480, 490, OWNER + 6, 5)],
    ),
}


def make(path: Path, **changes: tuple[str, list[tuple[Any, ...]]] | None) -> Path:
    """An export with some tables changed, or left out where a change is None."""
    connection = sqlite3.connect(path)
    for name, table in {**TABLES, **changes}.items():
        if table is not None:
            columns, rows = table
            connection.execute(f'CREATE TABLE "{name}" ({columns})')
            marks = ", ".join("?" * len(columns.split(",")))
            connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
    connection.commit()
    connection.close()
    return path
