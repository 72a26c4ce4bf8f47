"""Collectives that a block of the job's notes and makes together at its end.

Calls within the block are none by themselves; the end of it is one, of all their data.
"""

import functools
from _thread import get_ident
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from torch import distributed
from torch.distributed import distributed_c10d as c10d

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.torch import seam
from fuelline.record.hooks.torch.collectives import Part, RankGroups, find_rank_groups, keep_record
from fuelline.record.hooks.torch.seam import is_tracing
from fuelline.schema.wire import Flag, Kind, MarkPlace

__all__ = ["install"]

_COLLECTIVE, _ASYNC, _ERROR = int(Kind.COLLECTIVE), int(Flag.ASYNC), int(Flag.ERROR)
_BEGIN, _END = int(MarkPlace.COLLECTIVE_BEGIN), int(MarkPlace.COLLECTIVE_END)


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch the ends of such blocks."""
    hook = Coalesced(guest, find_rank_groups(guest, patches))
    name = seam.attribute_of(seam.PARTS["coalescing"])
    watched = hook.wrap(seam.coalescing)
    for owner in (c10d, distributed):
        if hasattr(owner, name):
            patches.replace(owner, name, watched)
    return [hook]


class Coalesced(Hook):
    """Collectives that are noted inside of a block, and made together at its end."""

    name = "coalesced collectives"
    forbids = "telling how long collectives that are made together take"

    def __init__(self, guest: Guest, roll: RankGroups) -> None:
        super().__init__(guest)
        self.coalescing = roll.coalescing
        self.leave = super().wrap(_Block.leave)
        self._handles = roll.handles

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The callable to put in the original's place."""

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            block = original(*args, **kwargs)
            if is_tracing() or not self.is_on or get_ident() in self.coalescing:
                return block
            return _Block(self, block)

        return watched

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The block ends: what was noted in it is to be made now."""
        block = args[0]
        if not block.parts:
            return None
        parts: list[Part] = block.parts
        first = parts[0]
        size_bytes = sum(part.size_bytes for part in parts)
        if self.guest.device_clock is not None:
            self.guest.device_clock.mark_here(_BEGIN)
        fields = (first.kind, size_bytes, first.group, first.next_number(), first.size)
        return fields, block, monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it, and for which handles it is waited."""
        fields, block, start_ns = ticket
        dur_ns = monotonic_ns() - start_ns
        works = getattr(block.given, "works", ())
        for work in works:
            self._handles.open[id(work)] = fields
        if self.guest.device_clock is not None and not works:
            self.guest.device_clock.mark_here(_END)
        flags = _ERROR if error is not None else _ASYNC if works else 0
        keep_record(self.guest, _COLLECTIVE, start_ns, dur_ns, fields, flags)


class _Block:
    """The job's own block, whose end is watched."""

    def __init__(self, hook: Coalesced, block: Any) -> None:
        self._hook, self._block = hook, block
        self.given: Any = None
        """Torch's handle of all that is made."""
        self.parts: list[Part] = []

    def __enter__(self) -> Any:
        self.given = self._block.__enter__()
        self._hook.coalescing[get_ident()] = self.parts
        return self.given

    def __exit__(self, *error: object) -> Any:
        self._hook.coalescing.pop(get_ident(), None)
        return self._hook.leave(self, *error)

    def leave(self, *error: object) -> Any:
        """Make all of them."""
        return self._block.__exit__(*error)
