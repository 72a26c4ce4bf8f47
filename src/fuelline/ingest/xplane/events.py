"""What an event of a plane is: kernel, copy, call, Python; and what its details say in words.

The profilers write launch parameters as text, `regs:38 shm:0 grid:160,1,1 block:1024,1,1
occ_pct:50` and `kind:pinned size:4096 dest:0 async:1`; a zero where a number is not known stays
unknown. On AMD copies run as kernels of the runtime library.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from fuelline.schema.run.trace import ChipFacts, CopyDirection, DeviceKind, HostKind

if TYPE_CHECKING:
    from fuelline.ingest.name_book import NameBook
    from fuelline.ingest.xplane.planes import PlaneEvent, PlaneLine, Value

DEVICE_COLUMNS = (
    "device",
    "stream",
    "start_ns",
    "end_ns",
    "name",
    "kind",
    "correlation",
    "size_bytes",
    "direction",
    "blocks",
    "threads",
    "registers",
    "shared_bytes",
    "graph",
)
HOST_COLUMNS = ("thread", "start_ns", "end_ns", "name", "kind", "correlation")

_DEVICE = re.compile(r"^/device:(?:GPU|TPU):(\d{1,6})$")
_DETAIL = re.compile(r"(\w+):([\d.,]+)")
_COPY = re.compile(r"^(?:Memcpy|__amd_rocclr_copy)")
_SET = re.compile(r"^(?:Memset|__amd_rocclr_fill)")
_MOVE = re.compile(r"^%?[\w.-]+ = .*?\bcopy-(?:start|done)\(")
"""Starting a copy between memories of XLA, or waiting for its end, as TPUs name their events."""
_SHAPE = re.compile(r"\b[a-z]\w*\[[\d,]*\](\{[^}]*\})?")
_IN_HOST = "S(5)"
"""The host's memory in a layout (xla/layout.h: kHostMemorySpace)."""
_API = re.compile(r"^(?:cuda|cu[A-Z]|hip|nccl|rccl)")
_DIRECTIONS = {
    "MemcpyH2D": CopyDirection.HOST_TO_DEVICE,
    "MemcpyD2H": CopyDirection.DEVICE_TO_HOST,
    "MemcpyD2D": CopyDirection.DEVICE_TO_DEVICE,
    "MemcpyP2P": CopyDirection.PEER,
}
_CALLS = (("Memcpy", "cuMemcpyAsync"), ("Memset", "cuMemsetAsync"))
_THREADS_PER_SM = {
    (7, 0): 2048,
    (7, 5): 1024,
    (8, 0): 2048,
    (8, 6): 1536,
    (8, 9): 1536,
    (9, 0): 2048,
    (10, 0): 2048,
    (12, 0): 1536,
}
"""By compute capability (CUDA programming guide, technical specifications per capability)."""
_REGISTERS_PER_SM = 65536
"""Of all of them (likewise)."""


def find_device(plane: str) -> int | None:
    """Number of the accelerator that a plane is about; None if it is about something else."""
    found = _DEVICE.match(plane)
    return int(found[1]) if found else None


def device_row(
    event: PlaneEvent, device: int, line: PlaneLine, names: NameBook
) -> tuple[object, ...]:
    """One row of DEVICE_COLUMNS."""
    stats = event.stats
    details = _details(stats.get("kernel_details"))
    moved = _details(stats.get("memcpy_details") or stats.get("memset_details"))
    return (
        device,
        line.number,
        event.start_ns,
        event.end_ns,
        names.number(event.name),
        _device_kind(event),
        _whole(stats.get("correlation_id")),
        _product(moved.get("size")),
        int(_direction(event.name)),
        _product(details.get("grid")),
        _product(details.get("block")),
        _product(details.get("regs")),
        _shared_bytes(details),
        _whole(stats.get("cuda_graph_id")),
    )


def host_row(event: PlaneEvent, line: PlaneLine, names: NameBook) -> tuple[object, ...]:
    """One row of HOST_COLUMNS."""
    correlation = _whole(event.stats.get("correlation_id"))
    name, kind = event.name, _host_kind(event, line)
    if kind == HostKind.RUNTIME and not _API.match(name):
        # TensorFlow names a call after the kernel or copy that it launches.
        name = next((call for start, call in _CALLS if name.startswith(start)), "cuLaunchKernel")
    return line.number, event.start_ns, event.end_ns, names.number(name), kind, correlation


def describe_chip(device: int, stats: dict[str, Value]) -> ChipFacts:
    """What the plane of a device says about it."""
    bandwidth = _number(stats.get("memory_bandwidth"))
    hbm = _number(stats.get("peak_hbm_bw_gigabytes_per_second"))
    flops = _number(stats.get("peak_teraflops_per_second"))
    capability = (_whole(stats.get("compute_cap_major")), _whole(stats.get("compute_cap_minor")))
    is_nvidia = stats.get("device_vendor", "Nvidia") in ("Nvidia", "NVIDIA")
    threads = _THREADS_PER_SM.get(capability) if is_nvidia else None  # type: ignore[arg-type]
    name = stats.get("device_type_string") or stats.get("device_type") or ""
    return ChipFacts(
        device=device,
        name=name[:200] if isinstance(name, str) else "",
        sm_count=_whole(stats.get("core_count")),
        warp_size=32 if threads else None,
        max_threads_per_sm=threads,
        registers_per_sm=_REGISTERS_PER_SM if threads else None,
        memory_bytes=_whole(stats.get("memory_size")),
        peak_flops_per_s=flops * 1e12 if flops else None,
        peak_bytes_per_s=bandwidth or (hbm * 1e9 if hbm else None),
    )


def _device_kind(event: PlaneEvent) -> int:
    """What computes and communicates follows from names (`signals/traced/kernels/names.py`)."""
    is_move = _find_move(event.name) is not None
    if is_move or "memcpy_details" in event.stats or _COPY.match(event.name):
        return DeviceKind.COPY
    if "memset_details" in event.stats or _SET.match(event.name):
        return DeviceKind.SET
    return DeviceKind.KERNEL


def _direction(name: str) -> CopyDirection:
    found = _find_move(name)
    return _DIRECTIONS.get(name[:9], CopyDirection.UNKNOWN) if found is None else found


@lru_cache(8192)
def _find_move(name: str) -> CopyDirection | None:
    """Which way a copy between XLA's memories goes; None if it is none.

    `copy-done` gives what was copied; `copy-start` that first, then what it is made from.
    """
    if not _MOVE.match(name):
        return None
    layouts = [layout or "" for layout in _SHAPE.findall(name)]
    if layouts and _IN_HOST in layouts[0]:
        return CopyDirection.DEVICE_TO_HOST
    is_from_host = any(_IN_HOST in layout for layout in layouts)
    return CopyDirection.HOST_TO_DEVICE if is_from_host else CopyDirection.DEVICE_TO_DEVICE


def _host_kind(event: PlaneEvent, line: PlaneLine) -> int:
    """Calls have a correlation; `$file.py:12 function` is Python; `name:Type` an operator."""
    if "correlation_id" in event.stats or _API.match(event.name):
        return HostKind.RUNTIME
    if event.name.startswith("$"):
        return HostKind.PYTHON
    if "is_eager" in event.stats or "hlo_op" in event.stats:
        return HostKind.OP
    return HostKind.ANNOTATION if line.name.startswith("python") else HostKind.OTHER


def _details(words: Value) -> dict[str, str]:
    return dict(_DETAIL.findall(words[:500])) if isinstance(words, str) else {}


def _product(words: str | None) -> int | None:
    """`160,1,1` -> 160; None if it is not known."""
    if not words:
        return None
    result = 1
    for word in words.split(","):
        if not word.isdigit() or len(word) > 18:
            return None
        result *= int(word)
    return result if 0 < result < 1 << 62 else None


def _shared_bytes(details: dict[str, str]) -> int | None:
    known = [
        words for key in ("shm", "static_shared", "dynamic_shared") if (words := details.get(key))
    ]
    sizes = [int(words) for words in known if words.isdigit() and len(words) < 10]
    return sum(sizes) if sizes else None


def _whole(value: Value) -> int | None:
    return value if isinstance(value, int) else None


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None
