"""What stages of a pipeline send each other, one tensor or several at a time.

What one rank sends is not matched with what another receives, so that nobody is blamed; how long it
keeps the training is seen. `isend` and `irecv` themselves are left alone, because torch recognises
them in what it is given: they, and what waits at once, call the group's own methods.
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
    Group,
    RankGroups,
    find_rank_groups,
    keep_record,
)
from fuelline.schema.wire import Collective, Flag, Kind, MarkPlace

__all__ = ["install"]

_COLLECTIVE, _SENDS = int(Kind.COLLECTIVE), int(Collective.SENDS)
_ASYNC, _ERROR = int(Flag.ASYNC), int(Flag.ERROR)
_BEGIN = int(MarkPlace.COLLECTIVE_BEGIN)
_UNMATCHED = -1
_SINGLY = ("send", "recv", "recv_anysource")
"""Methods of a group, `send(tensors, peer, tag)` and so on."""


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch exchanges between stages, and the waits for them."""
    roll = find_rank_groups(guest, patches)
    hooks: list[Hook] = [roll.handles]
    original = getattr(c10d, "batch_isend_irecv", None)
    if original is not None:
        several = Sends(guest, roll)
        watched = several.wrap(original)
        for owner in (c10d, distributed):
            patches.replace(owner, "batch_isend_irecv", watched)
        hooks.append(several)
    for name in _SINGLY:
        method = getattr(c10d.ProcessGroup, name, None)
        if method is not None:
            single = Send(guest, roll)
            patches.replace(c10d.ProcessGroup, name, single.wrap(method))
            hooks.append(single)
    return hooks


class Sends(Hook):
    """One exchange: some tensors are sent, some received."""

    name = "sends between ranks"
    forbids = "telling how long stages of a pipeline wait for each other"

    def __init__(self, guest: Guest, roll: RankGroups) -> None:
        super().__init__(guest)
        self.roll = roll

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the arrival and how much goes either way."""
        listed = args[0] if args else kwargs.get("p2p_op_list")
        if not listed:
            return None
        group = self.roll.group(listed[0].group)
        if group is None:
            return None
        self.guest.lane.exchanging = True
        return self.come(group, [each.tensor for each in listed])

    def come(self, group: Group, tensors: Any) -> Any:
        """The ticket of what is exchanged."""
        size_bytes = measure(tensors, None)[1]
        clock = self.guest.device_clock
        if clock is not None:
            clock.mark_here(_BEGIN)
        return (_SENDS, size_bytes, group.number, _UNMATCHED, group.size), monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it; whoever waits for it waits for its handles."""
        self.withdraw()
        self.go(ticket, result or (), error)

    def withdraw(self) -> None:
        """This thread sends nothing."""
        self.guest.lane.exchanging = False

    def go(self, ticket: Any, handles: Any, error: BaseException | None) -> None:
        """Keep the record and the handles."""
        fields, start_ns = ticket
        flags = _ASYNC if error is None else _ERROR
        waited_for = self.roll.handles.open
        for handle in handles:
            if len(waited_for) >= KEPT_HANDLES:
                del waited_for[next(iter(waited_for))]
            waited_for[id(handle)] = fields
        keep_record(self.guest, _COLLECTIVE, start_ns, monotonic_ns() - start_ns, fields, flags)


class Send(Sends):
    """One tensor is sent or received."""

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the arrival of a call that is not one of several."""
        if self.guest.lane.exchanging or len(args) < 2:
            return None
        group = self.roll.group(args[0])
        return None if group is None else self.come(group, args[1])

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it; `isend` and `irecv` give away what is waited for."""
        self.go(ticket, () if result is None else (result,), error)
