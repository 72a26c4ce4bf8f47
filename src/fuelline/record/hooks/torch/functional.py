"""Functional collectives, by which DTensor and tensor parallelism exchange what they need.

They return a tensor that is waited for when it is used, or have waited for it themselves. What a
compiled graph calls goes past Python and is not seen.
"""

import functools
from collections.abc import Callable
from inspect import signature
from time import monotonic_ns
from typing import Any

import torch
from torch.distributed import _functional_collectives as functional

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.torch import seam
from fuelline.record.hooks.torch.batches import measure
from fuelline.record.hooks.torch.collectives import (
    KEPT_HANDLES,
    Handles,
    RankGroups,
    find_rank_groups,
    keep_record,
)
from fuelline.record.hooks.torch.seam import is_tracing
from fuelline.schema.wire import Collective, Flag, Kind, MarkPlace

__all__ = ["install"]

_CALLS = {
    "all_reduce": Collective.ALL_REDUCE,
    "all_reduce_coalesced": Collective.ALL_REDUCE,
    "broadcast": Collective.BROADCAST,
    "all_gather_tensor": Collective.ALL_GATHER,
    "all_gather_single": Collective.ALL_GATHER,
    "all_gather_tensor_autograd": Collective.ALL_GATHER,
    "all_gather_single_autograd": Collective.ALL_GATHER,
    "all_gather_into_tensor_coalesced": Collective.ALL_GATHER,
    "all_gather_single_coalesced": Collective.ALL_GATHER,
    "reduce_scatter_tensor": Collective.REDUCE_SCATTER,
    "reduce_scatter_single": Collective.REDUCE_SCATTER,
    "reduce_scatter_tensor_autograd": Collective.REDUCE_SCATTER,
    "reduce_scatter_single_autograd": Collective.REDUCE_SCATTER,
    "reduce_scatter_tensor_coalesced": Collective.REDUCE_SCATTER,
    "reduce_scatter_single_coalesced": Collective.REDUCE_SCATTER,
    "all_to_all_single": Collective.ALL_TO_ALL,
    "all_to_all_single_autograd": Collective.ALL_TO_ALL,
}
"""Their first argument is what is exchanged. Some call others of them."""
_COLLECTIVE, _ASYNC, _ERROR = int(Kind.COLLECTIVE), int(Flag.ASYNC), int(Flag.ERROR)
_BEGIN, _END = int(MarkPlace.COLLECTIVE_BEGIN), int(MarkPlace.COLLECTIVE_END)
_PLAIN = (torch.Tensor, torch.nn.Parameter, functional.AsyncCollectiveTensor)


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch all that this torch has, and the waits for them."""
    handles = FunctionalWaits(guest)
    hooks: list[Hook] = [handles]
    roll = find_rank_groups(guest, patches)
    for name, kind in _CALLS.items():
        original = getattr(functional, name, None)
        if original is not None:
            hook = FunctionalCall(guest, roll, handles, kind, list(signature(original).parameters))
            patches.replace(functional, name, hook.wrap(original))
            hooks.append(hook)
    patches.replace(functional, "wait_tensor", handles.wrap(functional.wait_tensor))
    return hooks


def _place_of(tensor: Any) -> int:
    """Where a tensor's data is: what is waited for may be a view of the result. 0: nowhere."""
    if type(tensor) not in _PLAIN:
        return 0
    try:
        with seam.DisableTorchFunction():
            place: int = getattr(tensor, "elem", tensor).untyped_storage().data_ptr()
    except RuntimeError:  # it has none
        return 0
    return place


class FunctionalWaits(Handles):
    """`wait_tensor`: a result is needed."""

    name = "functional collectives' waits"
    key = staticmethod(_place_of)

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """As for a handle; a collective that waits itself is told of it."""
        guest, waiting = self.guest, super().wrap(original)

        @functools.wraps(original)
        def wait(*args: Any, **kwargs: Any) -> Any:
            if not is_tracing() and guest.lane.is_waited_for is False:
                guest.lane.is_waited_for = True
            return waiting(*args, **kwargs)

        return wait


class FunctionalCall(Hook):
    """One functional collective."""

    name = "functional collective"
    forbids = "telling how long ranks wait for each other in DTensor and tensor parallelism"

    def __init__(
        self,
        guest: Guest,
        roll: RankGroups,
        handles: Handles,
        kind: Collective,
        names: list[str],
    ) -> None:
        super().__init__(guest)
        self._roll, self._handles, self._kind = roll, handles, int(kind)
        self._group_at = names.index("group")
        self._data = names[0]

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the arrival at an outermost one."""
        lane = self.guest.lane
        if lane.is_waited_for is not None:
            return None
        data = args[0] if args else kwargs[self._data]
        parts = data if isinstance(data, list) else [data]
        if not parts or any(type(part) not in _PLAIN for part in parts):
            return None  # torch is tracing, and nothing is exchanged
        meant = args[self._group_at] if len(args) > self._group_at else kwargs["group"]
        group = self._roll.group(seam.find_group(seam.name_group(meant)))
        if group is None:
            return None
        with seam.DisableTorchFunction():
            size_bytes = measure([getattr(part, "elem", part) for part in parts], None)[1]
        if self._kind == Collective.ALL_GATHER:
            size_bytes *= group.size
        count = self._roll.next_number(group, self._kind)
        if self.guest.device_clock is not None:
            self.guest.device_clock.mark_here(_BEGIN)
        lane.is_waited_for = False
        fields = self._kind, size_bytes, group.number, count, group.size
        return fields, monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it, and for what is waited later."""
        fields, start_ns = ticket
        dur_ns = monotonic_ns() - start_ns
        is_done = self.guest.lane.is_waited_for
        self.withdraw()
        if is_done and self.guest.device_clock is not None:
            self.guest.device_clock.mark_here(_END)
        if not is_done and error is None:
            first = result[0] if isinstance(result, list) else result
            waited_for = self._handles.open
            if len(waited_for) >= KEPT_HANDLES:
                del waited_for[next(iter(waited_for))]
            waited_for[_place_of(first)] = fields
        flags = _ERROR if error is not None else 0 if is_done else _ASYNC
        keep_record(self.guest, _COLLECTIVE, start_ns, dur_ns, fields, flags)

    def withdraw(self) -> None:
        """This thread is in none."""
        self.guest.lane.is_waited_for = None
