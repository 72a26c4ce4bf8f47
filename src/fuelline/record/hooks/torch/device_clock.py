"""The device's own clock: two events a step on the training's stream, and never a synchronisation.

CUDA-only path (ROCm's torch answers to the same names), kept thin. One event is queued when a batch
has arrived, one after the optimizer. The device passes the first at once if its queue is empty, and
otherwise when it gets there: what lies between the end of a step and the beginning of the next is
time in which the device truly had nothing to do. Events are read steps later, once it passed them.
"""

from _thread import get_ident
from collections import deque
from time import monotonic_ns
from typing import Any

import torch
from torch.optim import optimizer as optimizers

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.torch import seam
from fuelline.record.hooks.torch.seam import is_tracing
from fuelline.schema.wire import Kind

__all__ = ["install"]

MOST_PENDING = 64
"""Steps whose events are kept until the device has passed them; no queue holds as many."""

_DEVICE_STEP = int(Kind.DEVICE_STEP)


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Mark the beginning and the end of each step on the stream that trains."""
    hook = StepEvents(guest)
    owner = seam.BaseIterator
    patches.replace(owner, "__next__", hook.wrap(owner.__next__))
    after = optimizers.register_optimizer_step_post_hook(hook.notice_step)
    patches.on_undo(after.remove)
    return [hook]


class StepEvents(Hook):
    """When the device began and ended each step."""

    name = "device clock"
    forbids = "saying how long the device itself was idle between steps"

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest)
        self._spare: list[Any] = []
        self._forget()
        guest.on_fork(self._forget)

    def _forget(self) -> None:
        self._begun: Any = None
        self._ended: Any = None
        self._pending: deque[tuple[int, Any, Any, Any]] = deque()
        """Host time, end of the step before, beginning, end."""

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Of several batches a step the first one counts."""
        return True if self._begun is None and self._can_mark() else None

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Mark the beginning of a step."""
        if error is None and self._begun is None:
            self._begun = self._mark()

    def notice_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Torch calls this after each optimizer step."""
        if is_tracing() or not self.is_on:
            return
        try:
            if self._can_mark():
                self._end_step()
        except Exception as fault:  # noqa: BLE001 - the guard
            self.answer_for(fault)

    def _can_mark(self) -> bool:
        """A stream that is being captured into a graph must not be touched."""
        if get_ident() != self.guest.trainer or not torch.cuda.is_initialized():
            return False
        return not torch.cuda.is_current_stream_capturing()

    def _mark(self) -> Any:
        event = self._spare.pop() if self._spare else torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _end_step(self) -> None:
        before, begun, ended = self._ended, self._begun, self._mark()
        self._begun, self._ended = None, ended
        if before is not None and begun is not None and len(self._pending) < MOST_PENDING:
            self._pending.append((monotonic_ns(), before, begun, ended))
        while self._pending and self._pending[0][3].query():
            self._tell(*self._pending.popleft())

    def _tell(self, at_ns: int, before: Any, begun: Any, ended: Any) -> None:
        idle_ns, busy_ns = (
            int(first.elapsed_time(last) * 1e6) for first, last in ((before, begun), (begun, ended))
        )
        self._spare += [before, begun]
        self.guest.append(_DEVICE_STEP, at_ns, 0, torch.cuda.current_device(), busy_ns, idle_ns)
