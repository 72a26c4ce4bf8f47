"""A device in torch that is not there: `import bench.emu`, and `.to("emu")` works.

Its memory is the host's and the CPU's kernels do the work, at once; what is emulated is time, and
how a GPU behaves in it. Launches return at once and queue up (the host is held up when the queue is
full), each kernel takes its time on its stream, events carry the device's time, a copy is waited
for unless it is asynchronous and its memory pinned, `.item()` and `synchronize()` wait for all that
was queued, asleep or spinning, and backward passes run on autograd's thread of the device. In a
forked child the device is out of bounds, as a GPU is.

What is different: a collective's numbers arrive when it ends, and work that was queued behind it
has been computed by then (`bench/emu/collectives.py`), so losses mean nothing there; a graph takes
its time when it is replayed and computes nothing. Settings are environment variables such as
EMU_KERNEL_US: `SETTINGS`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from enum import IntEnum
from typing import Any

import numpy as np
import torch

from bench.emu.build import BuildError, build

__all__ = ["SETTINGS", "BuildError", "Doing", "configure", "kernel", "library", "read_log"]

SETTINGS = (
    "kernel_us",
    "math_gflops",
    "memory_gbps",
    "copy_gbps",
    "copy_us",
    "launch_us",
    "depth",
    "spin",
    "devices",
)
"""What each means: `Settings` in bench/emu/csrc/queue.h."""

_STRETCH = np.dtype([("start_ns", "i8"), ("end_ns", "i8"), ("doing", "i4"), ("stream", "i4")])


class Doing(IntEnum):
    """What a device is busy with in a stretch of its log."""

    KERNEL = 0
    COPY = 1
    EXCHANGE = 2


def _load() -> ctypes.CDLL:
    """Compile, load, register. The library stays for as long as the process."""
    path = build()
    torch.ops.load_library(str(path))
    loaded = ctypes.CDLL(str(path))
    loaded.emu_configure.argtypes = [ctypes.c_char_p, ctypes.c_double]
    loaded.emu_kernel.argtypes = [ctypes.c_int64]
    loaded.emu_log.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int64]
    loaded.emu_log.restype = ctypes.c_int64
    loaded.emu_contexts.restype = ctypes.c_uint32
    for name in ("moment", "mark", "gate"):
        getattr(loaded, f"emu_{name}").restype = ctypes.c_void_p
    loaded.emu_mark.argtypes = [ctypes.c_int, ctypes.c_int64]
    loaded.emu_at.restype = ctypes.c_int64
    for name in ("at", "free", "has_passed", "wait_for"):
        getattr(loaded, f"emu_{name}").argtypes = [ctypes.c_void_p]
    loaded.emu_open.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    loaded.emu_gate.argtypes = [
        *(ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int),
    ]
    return loaded


def configure(**settings: float) -> None:
    """Change settings for what is queued from now on."""
    for name, value in settings.items():
        if library.emu_configure(name.encode(), float(value)):
            raise ValueError(f"no such setting: {name}; there are {', '.join(SETTINGS)}")


def kernel(length_ms: float) -> None:
    """Queue a kernel that computes nothing on the current stream, for so long."""
    library.emu_kernel(int(length_ms * 1e6))


def read_log(device: int = 0) -> Any:
    """What the device was or will be busy with: rows of start_ns, end_ns, doing, stream."""
    count = library.emu_log(device, None, 0)
    rows = np.empty(count, _STRETCH)
    count = library.emu_log(device, rows.ctypes.data, count)
    return rows[:count]


def busy_ns(device: int, start_ns: int, end_ns: int) -> int:
    """How long the device was busy in a window of the monotonic clock, on any stream."""
    rows = np.sort(read_log(device), order="start_ns")
    starts = np.clip(rows["start_ns"], start_ns, end_ns)
    ends = np.clip(np.maximum.accumulate(rows["end_ns"]), start_ns, end_ns) if len(rows) else starts
    reached = np.concatenate([[start_ns], ends[:-1]]) if len(rows) else ends
    return int(np.maximum(0, ends - np.maximum(starts, reached)).sum())


library = _load()


def _register() -> None:
    from bench.emu import module

    torch.utils.rename_privateuse1_backend("emu")
    torch._register_device_module("emu", module)
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    sys.modules["torch.emu"] = module
    configure(
        **{
            name: float(os.environ[f"EMU_{name.upper()}"])
            for name in SETTINGS
            if f"EMU_{name.upper()}" in os.environ
        }
    )


_register()
