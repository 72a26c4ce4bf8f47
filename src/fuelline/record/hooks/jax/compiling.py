"""Compiling within the training: JAX tells listeners how long each stage of it took."""

from _thread import get_ident
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.jax import seam
from fuelline.record.hooks.patches import Patches
from fuelline.schema.wire import Kind, PauseKind

__all__ = ["install"]

EVENTS = "/jax/core/compile/"
"""Tracing, lowering, and what XLA takes."""
SHORTEST_NS = 1_000_000
"""Looking up what is compiled already takes less."""
_PAUSE, _COMPILE = int(Kind.PAUSE), int(PauseKind.COMPILE)


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Listen; JAX has no public way to stop, so that the hook is switched off instead."""
    del patches
    compiling = Compiling(guest)
    seam.find_part("jax.monitoring", seam.LISTEN)(compiling.make_listener())
    return [compiling]


class Compiling(Hook):
    """Stages of compiling, on the thread that trains."""

    name = "compiling"
    forbids = "telling compiling from computing"

    def make_listener(self) -> Callable[..., None]:
        """What JAX calls after a stage, with its name and length."""

        def listen(event: str, duration: float, **_: Any) -> None:
            if not self.is_on or not event.startswith(EVENTS):
                return
            try:
                self._note(int(duration * 1e9))
            except BaseException as fault:  # noqa: BLE001 - the guard
                self.answer_for(fault)

        return listen

    def _note(self, dur_ns: int) -> None:
        guest = self.guest
        if dur_ns >= SHORTEST_NS and guest.trainer == get_ident():
            guest.append(_PAUSE, monotonic_ns() - dur_ns, dur_ns, -1, 0, _COMPILE)
