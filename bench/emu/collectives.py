"""Collectives of the emulated device, as NCCL's: the host only queues them.

`dist.init_process_group("emunccl")`. A collective starts when the stream that it was called on gets
there, lasts until every rank's device has come and the data has been exchanged, and runs on a
stream of its own; `wait()` makes the current stream wait and returns at once. The data really goes
over gloo, in a thread, once this rank's device has arrived: a slow network is as slow as it is, and
EMU_EXCHANGE_GBPS adds the time of a network of that speed.

What was queued behind a collective has been computed from numbers that were not exchanged yet; only
times are right.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]

from bench.emu import library

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

__all__ = ["NAME", "register"]

NAME = "emunccl"
_CALLS = {
    **{name: name for name in ("allreduce", "allreduce_coalesced", "broadcast", "reduce")},
    **{name: name for name in ("allgather", "gather", "scatter", "reduce_scatter", "alltoall")},
    **{name: name for name in ("_allgather_base", "_reduce_scatter_base", "send", "recv")},
    "all_gather_single": "_allgather_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "alltoall_base": "alltoall_base",
    "all_to_all_single": "alltoall_base",
}
"""What torch calls, by its old and its new names, and what that is for gloo."""


def register() -> None:
    """Make the backend known to torch.distributed."""
    dist.Backend.register_backend(NAME, _make, devices=["emu"])


def _make(store: Any, rank: int, size: int, timeout: timedelta) -> Group:
    return Group(store, rank, size, timeout)


class Group(dist.ProcessGroup):
    """One group: a stream, a thread and a group of gloo's."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        inner = dist.PrefixStore(NAME, store)
        self._gloo = dist.ProcessGroupGloo(inner, rank, size, timeout)
        self._stream: torch.Stream | None = None
        self._size = size
        self._gbps = float(os.environ.get("EMU_EXCHANGE_GBPS", "0"))
        self._queued: queue.SimpleQueue[tuple[int, int, Callable[[], Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._exchange, name=NAME, daemon=True).start()

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """As `dist.get_backend` says it."""
        return NAME

    @property
    def pg_name(self) -> str:
        """As torch has registered it."""
        return str(dist.distributed_c10d._world.pg_names[self])

    group_name = pg_name

    def barrier(self, opts: Any = None) -> Any:
        """As NCCL does it: a small all-reduce, and the host waits for the device."""
        work = self.allreduce([torch.zeros(1, device="emu")])
        work.wait()
        torch.accelerator.synchronize()
        return work

    def _queue(self, name: str, arguments: tuple[Any, ...]) -> Any:
        tensors = _tensors(arguments)
        device = tensors[0].device
        current = torch.accelerator.current_stream(device)
        if self._stream is None:
            self._stream = torch.Stream(device)
        own = self._stream
        own.wait_stream(current)
        reached = library.emu_mark(device.index, own.stream_id)
        done = library.emu_moment()
        bits = 8 * sum(each.nbytes for each in tensors) * 2 * (self._size - 1) / self._size
        length_ns = int(bits / self._gbps) if self._gbps else 0
        library.emu_free(library.emu_gate(device.index, own.stream_id, done, length_ns, 1))
        there = _on_host(arguments)
        self._queued.put((reached, done, lambda: getattr(self._gloo, name)(*there)))
        future = torch.futures.Future(devices=[device])
        with own:
            future.set_result(tensors)
        return _create_work_from_future(future)

    def _exchange(self) -> None:
        while True:
            reached, done, call = self._queued.get()
            library.emu_wait_for(reached)
            call().wait()
            library.emu_open(done, time.monotonic_ns())
            library.emu_free(reached)
            library.emu_free(done)


def _add_calls() -> None:
    for name, theirs in _CALLS.items():

        def call(self: Group, *arguments: Any, _name: str = theirs, **named: Any) -> Any:
            return self._queue(_name, (*arguments, *named.values()))

        setattr(Group, name, call)


_add_calls()


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for each in value for tensor in _tensors(each)]
    return []


def _on_host(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.ops.emu.on_host(value.detach())
    if isinstance(value, list | tuple):
        return type(value)(_on_host(each) for each in value)
    return value
