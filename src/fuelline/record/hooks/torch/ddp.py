"""What DDP exchanges by itself: buffers before a forward pass, gradients during backward.

It reduces gradients from C++ while backward runs; of these, the time from the end of this rank's
own work to the end of the last all-reduce is noted as one.
"""

from collections.abc import Callable
from time import monotonic_ns
from typing import Any

import torch
from torch import distributed

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.torch import seam
from fuelline.record.hooks.torch.batches import measure
from fuelline.record.hooks.torch.collectives import Group, RankGroups, keep_record
from fuelline.schema.wire import Collective, Flag, Kind, MarkPlace

__all__ = ["install"]

_COLLECTIVE, _ERROR = int(Kind.COLLECTIVE), int(Flag.ERROR)
_GRADIENTS, _BUFFERS = int(Collective.GRADIENTS), int(Collective.BUFFERS)
_BEGIN, _END = int(MarkPlace.COLLECTIVE_BEGIN), int(MarkPlace.COLLECTIVE_END)


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch what DDP exchanges by itself."""
    roll = RankGroups(guest)
    buffers, gradients = Buffers(guest, roll), Gradients(guest, roll)
    owner = torch.nn.parallel.distributed.DistributedDataParallel
    for where, part, hook in (
        (distributed, "broadcast_coalesced", buffers),
        (owner, "post_forward", gradients),
    ):
        original = getattr(seam, part)
        patches.replace(where, seam.attribute_of(seam.PARTS[part]), hook.wrap(original))
    return [buffers, gradients]


class Buffers(Hook):
    """DDP sends the buffers of the first rank (running means and the like) to the others."""

    name = "DDP buffers"
    forbids = "telling how long ranks wait for buffers"

    def __init__(self, guest: Guest, roll: RankGroups) -> None:
        super().__init__(guest)
        self._roll = roll

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the arrival."""
        group = self._roll.group(args[0])
        if group is None:
            return None
        number = self._roll.next_number(group, _BUFFERS)
        size_bytes = measure(args[1], None)[1]
        _mark(self.guest, _BEGIN)
        return (_BUFFERS, size_bytes, group.number, number, group.size), monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it."""
        fields, start_ns = ticket
        dur_ns = monotonic_ns() - start_ns
        _mark(self.guest, _END)
        flags = 0 if error is None else _ERROR
        keep_record(self.guest, _COLLECTIVE, start_ns, dur_ns, fields, flags)


class Gradients(Hook):
    """DDP reduces gradients during backward.

    Autograd calls back when it has done all of a backward pass; DDP then waits for its all-reduces
    in such a callback of its own. Ours comes before it, because it is queued when backward begins,
    and queues another one, which comes after it.
    """

    name = "DDP gradients"
    forbids = "telling how long ranks wait for each other in backward"

    def __init__(self, guest: Guest, roll: RankGroups) -> None:
        super().__init__(guest)
        self._roll = roll
        self._sizes: dict[int, int] = {}
        self.queue_callback = seam.queue_callback

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Take note of the module whose forward pass ends."""
        module = args[0]
        if not torch.is_grad_enabled() or not module.require_backward_grad_sync:
            return None
        return (module,)

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Ask to be called when the gradient of an output arrives: backward has begun."""
        output = _first_with_grad(result)
        if error is not None or output is None:
            return
        group = self._roll.group(ticket[0].process_group)
        if group is not None:
            output.register_hook(_Backward(self, group, self._size_bytes(ticket[0])).start)

    def mark(self, place: int) -> None:
        """Mark a moment on the device, in autograd's thread."""
        _mark(self.guest, place)

    def record(self, start_ns: int, end_ns: int, group: Group, size_bytes: int) -> None:
        """Record one backward pass's exchange, which has just ended."""
        dur_ns = end_ns - start_ns
        number = self._roll.next_number(group, _GRADIENTS)
        fields = (_GRADIENTS, size_bytes, group.number, number, group.size)
        keep_record(self.guest, _COLLECTIVE, start_ns, dur_ns, fields, 0)

    def _size_bytes(self, module: Any) -> int:
        found = self._sizes.get(id(module))
        if found is None:
            found = sum(each.nbytes for each in module.parameters() if each.requires_grad)
            self._sizes[id(module)] = found
        return found


class _Backward:
    """One backward pass, from the gradient of a DDP module's output to the end."""

    __slots__ = ("_group", "_hook", "_size_bytes", "_start_ns")

    def __init__(self, hook: Gradients, group: Group, size_bytes: int) -> None:
        self._hook = hook
        self._group = group
        self._size_bytes = size_bytes
        self._start_ns = 0

    def start(self, _: Any) -> None:
        """Backward has begun; called by autograd, so nothing may be raised."""
        self._guard(lambda: self._hook.queue_callback(self._arrive))

    def _arrive(self) -> None:
        self._hook.mark(_BEGIN)
        self._start_ns = monotonic_ns()
        self._guard(lambda: self._hook.queue_callback(self._complete))

    def _complete(self) -> None:
        start_ns, end_ns = self._start_ns, monotonic_ns()
        self._hook.mark(_END)
        self._guard(lambda: self._hook.record(start_ns, end_ns, self._group, self._size_bytes))

    def _guard(self, action: Callable[[], None]) -> None:
        if not self._hook.is_on:
            return
        try:
            action()
        except Exception as fault:  # noqa: BLE001 - the guard
            self._hook.answer_for(fault)


def _mark(guest: Guest, place: int) -> None:
    clock = guest.device_clock
    if clock is not None:
        clock.mark_here(place)


def _first_with_grad(output: Any) -> torch.Tensor | None:
    """A tensor of a model's output that gradients will flow through; plain containers only."""
    if isinstance(output, torch.Tensor):
        return output if output.requires_grad and output.grad_fn is not None else None
    parts = output.values() if isinstance(output, dict) else output
    if isinstance(output, (dict, list, tuple)):
        return next(
            (found for part in parts if (found := _first_with_grad(part)) is not None), None
        )
    return None
