"""The sorts of events by category: which table they go to, as what, and what is read of them.

What is kept of an event depends on its category and its own text alone, never on who reads it or
on what stands beside it; the compiled scanner and the readers in Python therefore agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from fuelline.schema.run.trace import DeviceKind, HostKind


@dataclass(frozen=True)
class EventSort:
    """What events have in common that are read the same way."""

    table: Literal["device", "host"]
    kind: int
    """DeviceKind or HostKind."""
    is_linked: bool = True
    """False where arguments are read only of operators that somebody may ask for."""


UNLINKED = {
    "cpu_op": HostKind.OP,
    "user_annotation": HostKind.ANNOTATION,
    "python_function": HostKind.PYTHON,
    "overhead": HostKind.PROFILER,
}
LINKED = {"cuda_runtime": HostKind.RUNTIME, "cuda_driver": HostKind.RUNTIME}
DEVICE = {
    "kernel": DeviceKind.KERNEL,
    "gpu_memcpy": DeviceKind.COPY,
    "gpu_memset": DeviceKind.SET,
}
IGNORED = (
    *("ac2g", "fwdbwd", "async_cpu_to_gpu", "async_gpu", "cpu_instant_event", "Trace"),
    *("gpu_user_annotation", "cuda_sync", "cuda_profiler_range", "collective_comm"),
)
"""Flows, marks, and complete events that repeat what others say on their own lane."""
_OLD_DEVICE = {"Kernel": DeviceKind.KERNEL, "Memcpy": DeviceKind.COPY, "Memset": DeviceKind.SET}
_OLD_HOST = {"Operator": HostKind.OP, "Runtime": HostKind.RUNTIME}
"""Names before Kineto of 2022."""
_OTHER_RUNTIMES = (
    *("xpu_runtime", "xpu_driver", "mtia_runtime", "privateuse1_runtime", "privateuse1_driver"),
    *("hpu_op", "glow_runtime"),
)
_OTHER_DEVICES = {"mtia_ccp_events": DeviceKind.KERNEL}
"""Host calls and device events of other accelerators (libkineto/include/ActivityType.h)."""

OTHER = EventSort("host", int(HostKind.OTHER))
"""Of categories that are not in CATEGORIES."""
CATEGORIES: dict[str, EventSort] = {
    **{
        cat: EventSort("device", int(kind))
        for cat, kind in (DEVICE | _OLD_DEVICE | _OTHER_DEVICES).items()
    },
    **{cat: EventSort("host", int(kind), is_linked=False) for cat, kind in UNLINKED.items()},
    **{cat: EventSort("host", int(kind)) for cat, kind in (LINKED | _OLD_HOST).items()},
    **{cat: EventSort("host", int(HostKind.RUNTIME)) for cat in _OTHER_RUNTIMES},
}
SORTS: tuple[EventSort, ...] = tuple(dict.fromkeys([*CATEGORIES.values(), OTHER]))
"""In the order in which their columns are written."""


@lru_cache(1024)
def find_sort(cat: str | None) -> EventSort:
    """Of an event, by its category."""
    return CATEGORIES.get(cat or "", OTHER)
