"""The device's own clock: timed events around the host's stalls, and never a synchronisation.

An event that is queued before a stall of the host and one after it have nothing between them on the
device, so that their distance is what the device was idle for, however many microbatches or
optimizers a step has. Events at other moments (backward, the end of a step) show how far the device
is behind the host. What they mean is worked out afterwards (`signals/recorded/device_marks.py`);
here they are put, and read at a later mark, once the device has passed them.

The stream is that of the optimizer's last step, on the device of its weights: no other device is
touched, so none gets a context. In a forked child the events belong to the parent: they are kept
there for ever, because freeing one would call the driver, which does not work in a child.
"""

import ctypes
from _thread import get_ident
from collections import deque
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import torch

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.torch import seam
from fuelline.record.hooks.torch.training import find_device
from fuelline.schema.wire import Kind, MarkPlace

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DeviceClock", "install"]

MOST_PENDING = 256
"""Events that the device has still to pass; no launch queue holds as many steps."""
FRESH_NS = 20_000
"""A stall that begins this soon after a mark begins with that: nothing much was queued between."""
_LOOK_EVERY = 32
"""Steps after which it is asked again which stream trains."""

_MARK = int(Kind.MARK)
_STEP_END = int(MarkPlace.STEP_END)
_BEGINNINGS = frozenset(
    map(
        int,
        (
            MarkPlace.WAIT_BEGIN,
            MarkPlace.COPY_BEGIN,
            MarkPlace.SYNC_BEGIN,
            MarkPlace.PAUSE_BEGIN,
            MarkPlace.COLLECTIVE_BEGIN,
            MarkPlace.COLLECTIVE_WAIT,
        ),
    )
)
_WITHOUT_TIMING = {
    "mps": "an event ends the command buffer that is being filled, which would slow the job down",
}
"""Devices whose events cannot be used, and why."""

Pending = tuple[int, int, Any, Any]
"""Host time, `MarkPlace`, stream, event."""


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Mark waits for batches, backward passes and steps; other hooks ask for more marks."""
    clock = DeviceClock(guest)
    guest.device_clock = clock
    patches.on_undo(lambda: setattr(guest, "device_clock", None))
    owner = seam.BaseIterator
    wait = Around(guest, clock, MarkPlace.WAIT_BEGIN, MarkPlace.WAIT_END)
    patches.replace(owner, "__next__", wait.wrap(owner.__next__))
    backward = Around(guest, clock, MarkPlace.BACKWARD_BEGIN, MarkPlace.BACKWARD_END)
    patches.replace(torch.autograd, "backward", backward.wrap(torch.autograd.backward))
    return [clock, wait, backward]


class DeviceClock(Hook):
    """Puts marks on the training's stream and reads those that the device has passed."""

    name = "device clock"
    forbids = "saying how long the device itself was idle, and whether it waits for launches"

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest)
        self._number = 0
        self._device: torch.device | None = None
        self._stream: Any = None
        self._begin_again()
        guest.on_fork(self._leave_to_parent)

    def _begin_again(self) -> None:
        self._pending: deque[Pending] = deque()
        self._spare: list[Any] = []
        self._latest: Any = None
        """The event that was read last, and when the device passed it."""
        self._latest_ns = 0
        self._marked_ns = 0
        self._marked_stream: Any = None
        self._until_look = 0

    def _leave_to_parent(self) -> None:
        """In a forked child: let go of the events without freeing them."""
        theirs = (self._pending, self._spare, self._latest, self._stream, self._marked_stream)
        if self._stream is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(theirs))
        self._device = self._stream = None
        self._begin_again()

    def notice_step(self, optimizer: Any) -> None:
        """An optimizer has stepped."""
        if not self.is_on:
            return
        try:
            if not self._until_look:
                self._look(optimizer)
                self._until_look = _LOOK_EVERY
            self._until_look -= 1
        except Exception as fault:  # noqa: BLE001 - the guard
            self.answer_for(fault)
        self.read()
        self.mark(_STEP_END)

    def mark(self, place: int) -> None:
        """Queue an event on the training's stream, if this is the thread that trains."""
        if self._stream is not None and get_ident() == self.guest.trainer:
            self._put(place, self._stream)

    def mark_here(self, place: int) -> None:
        """The same on the stream that is current here, for calls that choose their own."""
        if self._stream is None or not self.is_on:
            return
        try:
            stream = self._current_stream(self._device)
        except Exception as fault:  # noqa: BLE001 - the guard
            self.answer_for(fault)
            return
        self._put(place, self._stream if stream == self._stream else stream)

    def _put(self, place: int, stream: Any) -> None:
        now_ns = monotonic_ns()
        if (
            place in _BEGINNINGS
            and now_ns - self._marked_ns < FRESH_NS
            and stream is self._marked_stream
        ):
            return
        if not self.is_on or len(self._pending) >= MOST_PENDING:
            return
        try:
            if self._is_capturing():  # a stream that is being captured must not be touched
                return
            event = self._spare.pop() if self._spare else self._make_event()
            event.record(stream)
            self._pending.append((now_ns, place, stream, event))
            self._marked_ns, self._marked_stream = now_ns, stream
        except Exception as fault:  # noqa: BLE001 - the guard
            self.answer_for(fault)

    def read(self) -> None:
        """Write down the marks that the device has passed."""
        pending = self._pending
        if not pending or not self.is_on or get_ident() != self.guest.trainer:
            return
        try:
            if self._is_capturing():
                return
            while pending and pending[0][3].query():
                self._tell(*pending.popleft())
        except Exception as fault:  # noqa: BLE001 - the guard
            self.answer_for(fault)

    def _tell(self, at_ns: int, place: int, stream: Any, event: Any) -> None:
        if self._latest is not None:
            self._latest_ns += int(self._latest.elapsed_time(event) * 1e6)
            self._spare.append(self._latest)
        self._latest = event
        device = self._device
        self.guest.append(
            _MARK, at_ns, monotonic_ns() - at_ns, (device and device.index) or 0, self._latest_ns,
            self._number, getattr(stream, "stream_id", 0), place,
        )  # fmt: skip

    def _look(self, optimizer: Any) -> None:
        """Find out where the weights are, and the stream that is current there."""
        device = find_device(optimizer)
        if device is None:
            return
        if device != self._device and not self._turn_to(device):
            return
        stream = self._current_stream(device)
        if self._stream is None or not stream == self._stream:  # noqa: SIM201 - != is False for None
            self._stream = stream

    def _turn_to(self, device: torch.device) -> bool:
        """Begin another clock; whether this device has one."""
        why = _WITHOUT_TIMING.get(device.type, "")
        if not why and device.type == "cuda":
            self._make_event: Callable[[], Any] = lambda: torch.cuda.Event(enable_timing=True)
            self._current_stream: Callable[[Any], Any] = torch.cuda.current_stream
            self._is_capturing: Callable[[], bool] = torch.cuda.is_current_stream_capturing
        elif not why:
            why = self._turn_to_other(device)
        if why:
            self.guest.report_blindspot(f"clock of {device.type}", why, self.forbids)
            self.switch_off()
            return False
        self._begin_again()
        self._device, self._number = device, self._number + 1
        return True

    def _turn_to_other(self, device: torch.device) -> str:
        """Any accelerator that answers to torch's general events; else why not."""
        accelerator = getattr(torch, "accelerator", None)
        if accelerator is None or not hasattr(torch, "Event"):
            return f"torch {torch.__version__} has no general events for it (2.6 or later has)"
        try:
            torch.Event(device=device, enable_timing=True)
        except (RuntimeError, NotImplementedError) as refusal:
            return f"it has no timed events ({refusal})"
        backend = getattr(torch, device.type, None)
        self._make_event = lambda: torch.Event(device=device, enable_timing=True)
        self._current_stream = accelerator.current_stream
        self._is_capturing = getattr(backend, "is_current_stream_capturing", lambda: False)
        return ""


class Around(Hook):
    """Marks before and after a call of the trainer's."""

    name = "device clock around a call"
    forbids = DeviceClock.forbids

    def __init__(
        self, guest: Guest, clock: DeviceClock, before: MarkPlace, after: MarkPlace
    ) -> None:
        super().__init__(guest)
        self._clock = clock
        self._before, self._after = int(before), int(after)

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Mark the beginning."""
        if get_ident() != self.guest.trainer:
            return None
        self._clock.mark(self._before)
        return True

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Mark the end."""
        self._clock.read()
        self._clock.mark(self._after)
