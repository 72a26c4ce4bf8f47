"""Between host and accelerator: pinning a batch, copying it over, reading a value back.

CUDA-only path, kept thin: all but pinning is not installed with a torch that was built without any
accelerator. `Tensor.to` and its like are C methods that tensor subclasses recognise in sets and
tables (`func in {torch.Tensor.to}`), so what stands in for one equals it and hashes like it.
"""

from collections.abc import Callable
from time import monotonic_ns
from types import MethodType
from typing import Any

import torch

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.torch import seam
from fuelline.record.hooks.torch.batches import measure
from fuelline.schema.wire import Flag, Kind

__all__ = ["install_copies", "install_pinning", "install_reads"]

COPYING_METHODS = ("to", "cuda", "copy_")
READING_METHODS = ("item", "tolist", "cpu")
"""What makes the host wait until the device has computed a value; printing a tensor uses these.
`float(loss)` is left alone: the interpreter looks up `__float__` and `__bool__` itself, also for
every tensor on the host, and would call us each time."""

_PIN, _COPY, _SYNC = int(Kind.PIN), int(Kind.COPY), int(Kind.SYNC)
_IMPLICIT = int(Flag.IMPLICIT)
_NON_BLOCKING, _PINNED, _ERROR = int(Flag.NON_BLOCKING), int(Flag.PINNED), int(Flag.ERROR)
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)


def install_pinning(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch the loader's pinning, be it in its thread or in the trainer."""
    hook, pinning = Pin(guest), seam.pinning
    patches.replace(pinning, "pin_memory", hook.wrap(pinning.pin_memory))
    return [hook]


def install_copies(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch copies from the host to a device."""
    hook = Copy(guest)
    for name in COPYING_METHODS:
        original = getattr(torch.Tensor, name)
        patches.replace(torch.Tensor, name, _WatchedMethod(original, hook.wrap(original)))
    return [hook]


def install_reads(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch values that the host reads from a device."""
    hook = Read(guest)
    for name in READING_METHODS:
        original = getattr(torch.Tensor, name)
        patches.replace(torch.Tensor, name, _WatchedMethod(original, hook.wrap(original)))
    return [hook]


class Pin(Hook):
    """A batch is copied into page-locked memory."""

    name = "pinning"
    forbids = "telling how long pinning takes"

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start of a whole batch; the function calls itself for each part of it."""
        lane = self.guest.lane
        if lane.pinning:
            return None
        lane.pinning = True
        return (monotonic_ns(),)

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it."""
        dur_ns = monotonic_ns() - ticket[0]
        self.guest.lane.pinning = False
        size_bytes = measure(result, None)[1] if error is None else -1
        flags = 0 if error is None else _ERROR
        self.guest.append(_PIN, ticket[0], dur_ns, size_bytes, flags=flags)

    def withdraw(self) -> None:
        """This thread pins nothing."""
        self.guest.lane.pinning = False


class Copy(Hook):
    """A tensor is copied from the host to a device. The time is the caller's, not the device's."""

    name = "host-to-device copy"
    forbids = "telling how long copies to the device keep the training"

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start if the tensor that is copied is a plain one on the host."""
        # `to` and `cuda` copy the tensor itself, `copy_(source)` copies its argument.
        for source in args[:2]:
            if type(source) in _PLAIN_TENSORS and source.is_cpu:
                return source, kwargs, monotonic_ns()
        return None

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it if the result is elsewhere."""
        source, kwargs, start_ns = ticket
        if error is not None or type(result) not in _PLAIN_TENSORS or result.is_cpu:
            return
        dur_ns = monotonic_ns() - start_ns
        flags = _NON_BLOCKING if kwargs.get("non_blocking") else 0
        if result.is_cuda and source.is_pinned():
            flags |= _PINNED
        self.guest.append(_COPY, start_ns, dur_ns, source.nbytes, result.get_device(), flags=flags)


class Read(Hook):
    """The host reads a tensor of the device, and so waits until all that was queued is done."""

    name = "implicit synchronisation"
    forbids = "telling how long reading values from the device keeps the training"

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start if the tensor is a plain one on a device."""
        source = args[0]
        if type(source) not in _PLAIN_TENSORS or source.is_cpu:
            return None
        return source.get_device(), monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it as a synchronisation."""
        device, start_ns = ticket
        flags = _IMPLICIT if error is None else _IMPLICIT | _ERROR
        self.guest.append(_SYNC, start_ns, monotonic_ns() - start_ns, device, flags=flags)


class _WatchedMethod:
    """A watched method that equals and hashes like the C method it stands in for."""

    def __init__(self, original: Any, watched: Callable[..., Any]) -> None:
        self.__wrapped__ = original
        self.__name__ = original.__name__
        self.__doc__ = original.__doc__
        self._watched = watched

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self._watched, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._watched(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other == self.__wrapped__

    def __reduce__(self) -> Any:
        return self.__wrapped__.__reduce__()

    def __hash__(self) -> int:
        return hash(self.__wrapped__)
