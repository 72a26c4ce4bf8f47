"""The host waits for the device: `block_until_ready()`, and reading a value."""

import sys
from _thread import get_ident
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.jax import seam
from fuelline.record.hooks.patches import Patches
from fuelline.schema.wire import Flag, Kind

__all__ = ["install"]

READS = ("__float__", "__int__", "__bool__", "__index__", "__array__", "item", "tolist")
"""Functions of an array that need its value."""
_SYNC_KIND, _IMPLICIT, _ERROR = int(Kind.SYNC), int(Flag.IMPLICIT), int(Flag.ERROR)
SHORT_NS = 20_000
"""A value that is there already is no wait."""


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch all arrays."""
    owner = sys.modules[seam.ARRAY].ArrayImpl
    asked, read = DeviceWait(guest, 0), DeviceWait(guest, _IMPLICIT)
    patches.replace(owner, "block_until_ready", asked.wrap(_as_function(owner.block_until_ready)))
    for name in READS:
        original = vars(owner).get(name)
        if callable(original):
            patches.replace(owner, name, read.wrap(original))
    return [asked, read]


def _as_function(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function in C++ has no name that a wrapper could take over."""

    def block_until_ready(array: Any) -> Any:
        return method(array)

    return block_until_ready


class DeviceWait(Hook):
    """A call that returns once an array has been computed."""

    name = "reads"
    forbids = "telling waits for the device from the loop's own code"

    def __init__(self, guest: Guest, flags: int) -> None:
        super().__init__(guest)
        self._flags = flags

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start, of an outermost call of the trainer outside of its source."""
        guest, ident = self.guest, get_ident()
        if ident != guest.trainer or ident in guest.waiting or guest.is_at_wait_point:
            return None
        if guest.lane.reading:
            return None
        guest.lane.reading = True
        return monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it if it has waited."""
        now_ns = monotonic_ns()
        self.guest.lane.reading = False
        if now_ns - ticket >= SHORT_NS:
            flags = self._flags | (0 if error is None else _ERROR)
            self.guest.append(_SYNC_KIND, ticket, now_ns - ticket, -1, flags=flags)

    def withdraw(self) -> None:
        """This thread waits for nothing."""
        self.guest.lane.reading = False
