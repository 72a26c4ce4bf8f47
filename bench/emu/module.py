"""What `torch.emu` is: the functions that torch and its users expect of a device's module."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import Self

from bench.emu import configure, kernel, library, read_log

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["configure", "kernel", "read_log"]


class Stream(torch.Stream):
    """A stream of the device, the current one unless told."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Self:
        """As torch.cuda.Stream is made."""
        made: Self = super().__new__(cls, _as_device(device), priority=priority, **kwargs)
        return made


class Event:
    """A point in a stream, with the device's time if it was asked for: makes a `torch.Event`.

    No subclass of it: `elapsed_time` takes nothing but a plain one.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False) -> Any:  # noqa: FBT001, FBT002 - as torch has it
        """As torch.cuda.Event is made."""
        return torch.Event("emu", enable_timing=enable_timing, blocking=blocking)


def is_available() -> bool:
    """Whether there is a device."""
    return device_count() > 0


def device_count() -> int:
    """How many there are."""
    return int(library.emu_device_count())


def current_device() -> int:
    """The calling thread's."""
    return int(library.emu_current_device())


def set_device(device: Any) -> None:
    """Make it the calling thread's."""
    torch.accelerator.set_device_index(_as_device(device).index)


def current_stream(device: Any = None) -> torch.Stream:
    """The calling thread's on a device."""
    return torch.accelerator.current_stream(_as_device(device))


def set_stream(stream: torch.Stream) -> None:
    """Make it the calling thread's on its device."""
    torch.accelerator.set_stream(stream)


@contextlib.contextmanager
def stream(stream: torch.Stream | None) -> Iterator[None]:
    """Queue on this stream within; None: as before."""
    if stream is None:
        yield
        return
    with stream:
        yield


@contextlib.contextmanager
def device(device: Any) -> Iterator[None]:
    """Use this device within."""
    before = current_device()
    set_device(device)
    try:
        yield
    finally:
        set_device(before)


def synchronize(device: Any = None) -> None:
    """Wait until the device has done all that was queued."""
    torch.accelerator.synchronize(_as_device(device))


def is_initialized() -> bool:
    """Whether this process has used a device."""
    return bool(library.emu_contexts())


def contexts() -> list[int]:
    """The devices that this process has used: a GPU keeps memory for each."""
    used = library.emu_contexts()
    return [index for index in range(device_count()) if used >> index & 1]


def is_current_stream_capturing() -> bool:
    """Whether what is queued goes into a graph."""
    return bool(library.emu_is_capturing())


def _is_in_bad_fork() -> bool:
    return bool(library.emu_is_bad_fork())


def _lazy_init() -> None:
    pass


def init() -> None:
    """Nothing is to be done before the first use."""


def manual_seed(seed: int) -> None:
    """The CPU's generator serves the device as well."""


def manual_seed_all(seed: int) -> None:
    """See `manual_seed`."""


def get_rng_state(device: Any = None) -> torch.Tensor:
    """The CPU's."""
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    """The CPU's."""
    torch.set_rng_state(state)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What autocast may cast to."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported() -> bool:
    """Kernels are the CPU's, which knows it."""
    return True


def get_device_name(device: Any = None) -> str:
    """What a report shows."""
    return "emulated device"


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """None that means anything."""
    return (0, 0)


def empty_cache() -> None:
    """There is none."""


def memory_allocated(device: Any = None) -> int:
    """Not counted."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def _as_device(device: Any) -> torch.device:
    if device is None:
        return torch.device("emu", current_device())
    if isinstance(device, int):
        return torch.device("emu", device)
    found = torch.device(device)
    return found if found.index is not None else torch.device("emu", current_device())
