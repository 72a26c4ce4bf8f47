"""What is read of an Nsight Systems export: its tables and columns, whichever version wrote them.

The exporter creates tables lazily and changes columns from version to version, so nothing is asked
of a version number: a table that is there is read, a column that is missing is null. Column lists
are from https://docs.nvidia.com/nsight-systems/UserGuide (SQLite schema reference) and from the
exports of 2022.2 (schema 2.9) and 2026.2 (schema 3.25).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuelline.schema.run.trace import CopyDirection, DeviceKind, HostKind

if TYPE_CHECKING:
    from collections.abc import Mapping

CAPTURE_TABLES = ("META_DATA_CAPTURE", "EXPORT_META_DATA", "META_DATA_EXPORT")
"""Metadata by its name of three generations; at least one is in every export."""


COPY_TABLE = "CUPTI_ACTIVITY_KIND_MEMCPY"


@dataclass(frozen=True)
class Source:
    """One table of events: which of our columns comes from which of its own."""

    table: str
    kind: int
    owner: str
    """The column with the process: `globalPid` of a device event, `globalTid` of a host event."""
    columns: Mapping[str, str]
    """Ours to theirs, or to a product or sum of theirs; what is no whole number becomes null."""
    names: tuple[str, ...] = ()
    """Columns with a name, the first that is there; numbers are looked up in StringIds."""
    fallback: str = ""
    """The name of an event without one."""
    where: str = ""
    needs: tuple[str, ...] = ()
    """Columns that `where` asks for; without them all rows count."""


_DEVICE = {
    "device": "deviceId",
    "stream": "streamId",
    "correlation": "correlationId",
    "graph": "graphId",
}

DEVICE_SOURCES = (
    Source(
        table="CUPTI_ACTIVITY_KIND_KERNEL",
        kind=DeviceKind.KERNEL,
        owner="globalPid",
        columns={
            **_DEVICE,
            "blocks": "gridX*gridY*gridZ",
            "threads": "blockX*blockY*blockZ",
            "registers": "registersPerThread",
            "shared_bytes": "staticSharedMemory+dynamicSharedMemory",
            "graph_node": "graphNodeId",
        },
        names=("demangledName", "shortName"),
        fallback="kernel",
    ),
    Source(
        table=COPY_TABLE,
        kind=DeviceKind.COPY,
        owner="globalPid",
        columns={**_DEVICE, "size_bytes": "bytes", "copy_kind": "copyKind"},
        fallback="Memcpy",
    ),
    Source(
        table="CUPTI_ACTIVITY_KIND_MEMSET",
        kind=DeviceKind.SET,
        owner="globalPid",
        columns={**_DEVICE, "size_bytes": "bytes"},
        fallback="Memset",
    ),
    Source(
        table="CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        kind=DeviceKind.KERNEL,
        owner="globalPid",
        columns=_DEVICE,
        fallback="CUDA graph",
    ),
)

_BACKTRACE_CLASS = 67
"""ENUM_NSYS_EVENT_CLASS: the same call again, with the stack that led to it."""
_RANGES = "(59, 60, 70, 71)"
"""ENUM_NSYS_EVENT_TYPE: push/pop and start/end ranges of NVTX, recorded live or from a text."""

HOST_SOURCES = (
    Source(
        table="CUPTI_ACTIVITY_KIND_RUNTIME",
        kind=HostKind.RUNTIME,
        owner="globalTid",
        columns={"correlation": "correlationId"},
        names=("nameId",),
        fallback="CUDA call",
        where=f"eventClass IS NOT {_BACKTRACE_CLASS}",
        needs=("eventClass",),
    ),
    Source(
        table="NVTX_EVENTS",
        kind=HostKind.ANNOTATION,
        owner="globalTid",
        columns={},
        names=("text", "textId"),
        fallback="range",
        where=f"eventType IN {_RANGES} AND end IS NOT NULL",
        needs=("eventType",),
    ),
    Source(
        table="OSRT_API",
        kind=HostKind.OTHER,
        owner="globalTid",
        columns={},
        names=("nameId",),
        fallback="system call",
    ),
    Source(
        table="CUDNN_EVENTS",
        kind=HostKind.OTHER,
        owner="globalTid",
        columns={},
        names=("nameId",),
        fallback="cuDNN call",
    ),
    Source(
        table="CUBLAS_EVENTS",
        kind=HostKind.OTHER,
        owner="globalTid",
        columns={},
        names=("nameId",),
        fallback="cuBLAS call",
    ),
    Source(
        table="PROFILER_OVERHEAD",
        kind=HostKind.PROFILER,
        owner="globalTid",
        columns={},
        names=("nameId",),
        fallback="profiler",
    ),
    Source(
        table="CUPTI_ACTIVITY_KIND_OVERHEAD",
        kind=HostKind.PROFILER,
        owner="globalTid",
        columns={"correlation": "correlationId"},
        names=("nameId",),
        fallback="profiler",
        where="overheadType IN (3, 4, 5)",
        needs=("overheadType",),
    ),
)
"""Overhead 3 to 5 is the profiler's own (buffer flush, instrumentation, resources); a full command
buffer or the loading of a module happens without it, too, and lies under its runtime call."""

COPY_DIRECTIONS = {
    1: CopyDirection.HOST_TO_DEVICE,
    2: CopyDirection.DEVICE_TO_HOST,
    3: CopyDirection.HOST_TO_DEVICE,
    4: CopyDirection.DEVICE_TO_HOST,
    5: CopyDirection.DEVICE_TO_DEVICE,
    6: CopyDirection.DEVICE_TO_DEVICE,
    7: CopyDirection.DEVICE_TO_DEVICE,
    8: CopyDirection.DEVICE_TO_DEVICE,
    10: CopyDirection.PEER,
    11: CopyDirection.HOST_TO_DEVICE,
    12: CopyDirection.DEVICE_TO_HOST,
    13: CopyDirection.DEVICE_TO_DEVICE,
}
"""ENUM_CUDA_MEMCPY_OPER: host, device, array (A), peer, and unified memory (11 to 13)."""

COPY_NAMES = {
    CopyDirection.UNKNOWN: "Memcpy",
    CopyDirection.HOST_TO_DEVICE: "Memcpy HtoD",
    CopyDirection.DEVICE_TO_HOST: "Memcpy DtoH",
    CopyDirection.DEVICE_TO_DEVICE: "Memcpy DtoD",
    CopyDirection.PEER: "Memcpy PtoP",
}

CHIP_COLUMNS = {
    "sm_count": "smCount",
    "warp_size": "threadsPerWarp",
    "max_warps_per_sm": "maxWarpsPerSm",
    "registers_per_sm": "maxRegistersPerSm",
    "shared_bytes_per_sm": "maxShmemPerSm",
    "memory_bytes": "totalMemory",
    "peak_bytes_per_s": "memoryBandwidth",
}
"""Fields of ChipFacts to columns of TARGET_INFO_GPU; warps times their width are threads."""
