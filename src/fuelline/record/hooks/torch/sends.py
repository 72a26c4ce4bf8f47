"""What stages of a pipeline send each other, several tensors at a time.

`batch_isend_irecv` is the way that pipelines go. What one rank sends is not matched with what
another receives, so that nobody is blamed; how long it keeps the training is seen. `isend` and
`irecv` themselves are left alone: torch recognises them in what it is given.
"""

from time import monotonic_ns
from typing import Any

from torch import distributed
from torch.distributed import distributed_c10d as c10d

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.torch.batches import measure
from fuelline.record.hooks.torch.collectives import (
    KEPT_HANDLES,
    Handles,
    RankGroups,
    keep_record,
)
from fuelline.schema.wire import Collective, Flag, Kind, MarkPlace

__all__ = ["install"]

_COLLECTIVE, _SENDS = int(Kind.COLLECTIVE), int(Collective.SENDS)
_ASYNC, _ERROR = int(Flag.ASYNC), int(Flag.ERROR)
_BEGIN = int(MarkPlace.COLLECTIVE_BEGIN)
_UNMATCHED = -1


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch exchanges between stages, and the waits for them."""
    original = getattr(c10d, "batch_isend_irecv", None)
    if original is None:
        return []
    handles = Handles(guest)
    hook = Sends(guest, RankGroups(guest), handles)
    watched = hook.wrap(original)
    for owner in (c10d, distributed):
        patches.replace(owner, "batch_isend_irecv", watched)
    patches.replace(c10d.Work, "wait", handles.wrap(c10d.Work.wait))
    return [hook, handles]


class Sends(Hook):
    """One exchange: some tensors are sent, some received."""

    name = "sends between ranks"
    forbids = "telling how long stages of a pipeline wait for each other"

    def __init__(self, guest: Guest, roll: RankGroups, handles: Handles) -> None:
        super().__init__(guest)
        self._roll = roll
        self._handles = handles

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the arrival and how much goes either way."""
        listed = args[0] if args else kwargs.get("p2p_op_list")
        if not listed:
            return None
        group = self._roll.group(listed[0].group)
        if group is None:
            return None
        size_bytes = measure([each.tensor for each in listed], None)[1]
        clock = self.guest.device_clock
        if clock is not None:
            clock.mark_here(_BEGIN)
        return (_SENDS, size_bytes, group.number, _UNMATCHED, group.size), monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it; whoever waits for it waits for its handles."""
        fields, start_ns = ticket
        flags = _ASYNC if error is None else _ERROR
        waited_for = self._handles.open
        for handle in result or ():
            if len(waited_for) >= KEPT_HANDLES:
                del waited_for[next(iter(waited_for))]
            waited_for[id(handle)] = fields
        keep_record(self.guest, _COLLECTIVE, start_ns, monotonic_ns() - start_ns, fields, flags)
