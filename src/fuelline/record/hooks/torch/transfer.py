"""Between host and accelerator: pinning a batch, copying it over, reading a value back.

Kept thin: all but pinning is not installed where there can be no accelerator. `Tensor.to` and its
like are C methods that tensor subclasses recognise in sets and tables (`func in {torch.Tensor.to}`)
so what stands in for one equals it and hashes like it.
"""

from _thread import get_ident
from collections.abc import Callable
from time import monotonic_ns
from types import MethodDescriptorType, MethodType
from typing import Any

import torch

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.torch import seam
from fuelline.record.hooks.torch.batches import measure
from fuelline.schema.wire import Flag, Kind, MarkPlace, tail

__all__ = ["install_copies", "install_pinning", "install_reads"]

COPYING_METHODS = ("to", "cuda", "copy_")
READING_METHODS = ("item", "tolist", "cpu")
"""What makes the host wait until the device has computed a value; printing a tensor uses these.
`float(loss)` is left alone: the interpreter looks up `__float__` and `__bool__` itself, also for
every tensor on the host, and would call us each time."""

_PIN, _COPY, _SYNC = int(Kind.PIN), int(Kind.COPY), int(Kind.SYNC)
_IMPLICIT = int(Flag.IMPLICIT)
_NON_BLOCKING, _PINNED, _ERROR = int(Flag.NON_BLOCKING), int(Flag.PINNED), int(Flag.ERROR)
_OWN = int(Flag.OWN)
_COPY_TAILS = tuple(
    tuple(tail(_COPY, free | pinned) for pinned in (0, _PINNED)) for free in (0, _NON_BLOCKING)
)
"""By whether the call waits, and whether the memory is pinned."""
_COPY_BEGIN, _COPY_END = int(MarkPlace.COPY_BEGIN), int(MarkPlace.COPY_END)
_SYNC_BEGIN = int(MarkPlace.SYNC_BEGIN)
_BESIDE_BEGIN, _BESIDE_END = int(MarkPlace.BESIDE_BEGIN), int(MarkPlace.BESIDE_END)
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
_DataType = torch.dtype
_count_modes = seam.count_modes
_DisableTorchFunction = seam.DisableTorchFunction


def install_pinning(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch the loader's pinning, be it in its thread or in the trainer."""
    hook, pinning = Pin(guest), seam.pinning
    patches.replace(pinning, "pin_memory", hook.wrap(pinning.pin_memory))
    return [hook]


def install_copies(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch copies from the host to a device."""
    hooks: list[Hook] = []
    for name in COPYING_METHODS:
        original, hook = getattr(torch.Tensor, name), Copy(guest, name)
        patches.replace(torch.Tensor, name, _WatchedMethod(original, hook.wrap(original)))
        hooks.append(hook)
    return hooks


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
    """A tensor is copied from the host to a device. The time is the caller's, not the device's.

    A blocking copy to the host waits for the device, and so is a synchronisation.
    """

    name = "host-to-device copy"
    forbids = "telling how long copies to the device keep the training"

    def __init__(self, guest: Guest, method: str) -> None:
        super().__init__(guest)
        self._source_at = 1 if method == "copy_" else 0
        self._may_convert = method == "to"
        """`to(torch.float32)` goes nowhere."""

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start if the tensor that is copied is a plain one."""
        to_host = False
        if self._may_convert:
            target = args[1] if len(args) > 1 else kwargs.get("device", kwargs.get("other"))
            if target is None or type(target) is _DataType:
                return None
            to_host = target == "cpu" if type(target) is str else _is_host(target)
        source = args[self._source_at] if len(args) > self._source_at else kwargs.get("src")
        if type(source) not in _PLAIN_TENSORS:
            return None
        was_on_host = _is_on_host(source)
        if was_on_host and to_host:
            return None
        clock = self.guest.device_clock
        if clock is not None and (was_on_host or to_host):
            clock.mark(_COPY_BEGIN if was_on_host else _SYNC_BEGIN)
        is_free = bool(kwargs and kwargs.get("non_blocking"))
        for each in args[1:]:
            if each is True:
                is_free = True
        if clock is not None and is_free and was_on_host:
            clock.mark_beside(_BESIDE_BEGIN)
        return source, was_on_host, is_free, monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it if it went from the one to the other."""
        source, was_on_host, is_free, start_ns = ticket
        now_ns = monotonic_ns()
        if error is not None or type(result) not in _PLAIN_TENSORS:
            return
        if _is_on_host(result) == was_on_host:
            return
        clock = self.guest.device_clock
        if clock is not None:
            if was_on_host:
                _mark_end(clock, result, is_free=is_free)
            elif not is_free:
                clock.read()
        if was_on_host:
            size_bytes, device, is_pinned = _describe(source, result)
            buffer = self.guest.spool.buffer
            if get_ident() != buffer.trainer:
                flags = (_NON_BLOCKING if is_free else 0) | (_PINNED if is_pinned else 0)
                dur_ns = now_ns - start_ns
                self.guest.append(_COPY, start_ns, dur_ns, size_bytes, device, flags=flags)
            elif buffer.keep(
                start_ns, now_ns, size_bytes, device, 0, 0, 0, _COPY_TAILS[is_free][is_pinned]
            ):
                self.guest.spool.write_buffered()
        elif not is_free:
            device = _describe(None, source)[1]
            self.guest.append(_SYNC, start_ns, now_ns - start_ns, device, flags=_IMPLICIT)


def _mark_end(clock: Any, result: Any, *, is_free: bool) -> None:
    if not clock.has_device:
        clock.notice_copy(result)
    if is_free:
        clock.mark(_COPY_END)
        clock.mark_beside(_BESIDE_END)
    else:
        clock.read_and_mark(_COPY_END)


class Read(Hook):
    """The host reads a tensor of the device, and so waits until all that was queued is done."""

    name = "implicit synchronisation"
    forbids = "telling how long reading values from the device keeps the training"

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start if the tensor is a plain one on a device."""
        source = args[0]
        if type(source) not in _PLAIN_TENSORS or _is_on_host(source):
            return None
        clock = self.guest.device_clock
        if clock is not None:
            clock.mark(_SYNC_BEGIN)
        return _describe(None, source)[1], monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it as a synchronisation."""
        device, start_ns = ticket
        dur_ns = monotonic_ns() - start_ns
        clock = self.guest.device_clock
        if clock is not None:
            clock.read()
        flags = _IMPLICIT if error is None else _IMPLICIT | _ERROR
        if self.guest.lane.scaling:
            flags |= _OWN
        self.guest.append(_SYNC, start_ns, dur_ns, device, flags=flags)


def _is_host(target: Any) -> bool:
    return type(target) is torch.device and target.type == "cpu"


def _is_on_host(tensor: Any) -> bool:
    """Where a tensor is; a function mode of the job's (a default device) must not notice."""
    if _count_modes():
        with _DisableTorchFunction():
            return bool(tensor.is_cpu)
    return bool(tensor.is_cpu)


def _describe(source: Any, result: Any) -> tuple[int, int, bool]:
    """Bytes of what was copied, number of the device, and whether the memory was pinned."""
    if _count_modes():
        with _DisableTorchFunction():
            return _describe_plainly(source, result)
    return _describe_plainly(source, result)


def _describe_plainly(source: Any, result: Any) -> tuple[int, int, bool]:
    device = result.get_device()
    if source is None:
        return 0, device, False
    try:
        size_bytes = source.nbytes
    except RuntimeError:  # a layout without a plain size
        size_bytes = measure(source, None)[1]
    return size_bytes, device, source.is_cpu and not result.is_mps and source.is_pinned()


class _WatchedMethod:
    """A watched method that equals and hashes like the C method it stands in for.

    It also says that it is of the same type: so torch's compiler takes it for the method that it
    has the name of, and compiles that. Else a call by the class, or under a function mode (a
    default device is one), would break the graph.
    """

    def __init__(self, original: Any, watched: Callable[..., Any]) -> None:
        self.__wrapped__ = original
        self.__name__ = original.__name__
        self.__doc__ = original.__doc__
        self._watched = watched

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return MethodDescriptorType

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
