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
import functools
import os
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

import torch

from fuelline.record.buffer import MarkQueue, MarkSettings
from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.torch import seam
from fuelline.record.hooks.torch.seam import is_tracing
from fuelline.record.hooks.torch.training import HOSTS, find_device
from fuelline.schema.wire import Kind, MarkPlace, tail

__all__ = ["DeviceClock", "install"]

MOST_PENDING = 256
"""Events that the device has still to pass. Past it marks are left out until half of them are read:
a queue of whole steps that are graphs may hold more."""
FRESH_NS = 20_000
"""A stall that begins this soon after a mark begins with that: nothing much was queued between."""
_LOOK_EVERY = 32
"""Steps after which it is asked again which stream trains."""

_FOREIGN = (
    "it trains on a stream that is not torch's own, and might be gone when an event is put on it"
)

_MARK_TAIL = tail(int(Kind.MARK))
_STEP_END = int(MarkPlace.STEP_END)
_BEGINNINGS = (
    MarkPlace.WAIT_BEGIN,
    MarkPlace.COPY_BEGIN,
    MarkPlace.SYNC_BEGIN,
    MarkPlace.PAUSE_BEGIN,
    MarkPlace.COLLECTIVE_BEGIN,
    MarkPlace.COLLECTIVE_WAIT,
)
_RESUMING = (MarkPlace.STEP_END, MarkPlace.WAIT_BEGIN)
"""Marks after which all goes on that was left out: what lies before them is no stall's alone."""
_PLACES = _BEGINNINGS, _RESUMING
_WITHOUT_TIMING = {
    "mps": "an event ends the command buffer that is being filled, which would slow the job down",
}
"""Devices whose events cannot be used, and why."""

Pending = tuple[int, int, int, Any]
"""Host time, `MarkPlace`, number of the stream, event."""


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Mark waits for batches, backward passes and steps; other hooks ask for more marks."""
    clock = DeviceClock(guest)
    guest.device_clock = clock
    patches.on_undo(clock.leave_off)
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
        self._buffer = guest.spool.buffer
        self._device: torch.device | None = None
        self._is_cuda = False
        beginnings, resuming = (sum(1 << each for each in places) for places in _PLACES)
        settings = MarkSettings(FRESH_NS, MOST_PENDING, beginnings, resuming, _MARK_TAIL)
        self._queue = MarkQueue(self._buffer, self, settings)
        self.mark, self.read = self._queue.mark, self._queue.read
        self.read_and_mark = self._queue.read_and_mark
        self._beside: deque[Pending] = deque()
        """Of copies on other streams, which must not hold up the reading of the training's own."""
        self._until_look = 0
        guest.on_fork(self._leave_to_parent)

    def _begin_again(self) -> list[Any]:
        theirs = [self._beside, *self._queue.clear()]
        self._beside = deque()
        self._until_look = 0
        return theirs

    def _leave_to_parent(self) -> None:
        """In a forked child: let go of the events without freeing them."""
        theirs = self._begin_again()
        if self._device is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(theirs))
        self._device = None

    def leave_off(self) -> None:
        """The recording has ended: nobody asks for the events any more."""
        self.guest.device_clock = None
        if self.guest.pid == os.getpid():
            self._begin_again()

    def switch_off(self) -> None:
        """Queue nothing more; what is queued stays, as nobody asks for it."""
        super().switch_off()
        self._queue.stream = None

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
        self.read_and_mark(_STEP_END)

    def notice_copy(self, copied: Any) -> None:
        """A tensor went to a device: that of the training, where weights do not say which it is.

        A job without an optimizer has no others, and one that offloads has them on the host.
        """
        if not self.is_on or get_ident() != self._buffer.trainer:
            return
        try:
            with seam.DisableTorchFunction():
                device = copied.device
            if device.type not in HOSTS and self._turn_to(device):
                self._follow(self._current_stream(device))
        except Exception as fault:  # noqa: BLE001 - the guard
            self.answer_for(fault)

    @property
    def has_device(self) -> bool:
        """Whether it is known which device trains."""
        return self._device is not None

    def notice_replay(self) -> None:
        """A captured graph was replayed: on the stream that trains, whatever it was made on."""
        if self._queue.stream is None or not self.is_on:
            return
        try:
            self._follow(self._current_stream(self._device))
        except Exception as fault:  # noqa: BLE001 - the guard
            self.answer_for(fault)
        self.read_and_mark(_STEP_END)

    def mark_here(self, place: int) -> None:
        """Mark the stream that is current here, for calls that choose their own."""
        queue = self._queue
        if queue.stream is None or not self.is_on:
            return
        try:
            stream = self._current_stream(self._device)
        except Exception as fault:  # noqa: BLE001 - the guard
            self.answer_for(fault)
            return
        if stream == queue.stream:
            queue.put(place, queue.stream, queue.stream_id)
        else:
            queue.put(place, stream, getattr(stream, "stream_id", 0))

    def mark_beside(self, place: int) -> None:
        """Queue an event on the current stream if that is not the training's: a copy beside it."""
        queue, beside = self._queue, self._beside
        if queue.stream is None or not self.is_on or get_ident() != self._buffer.trainer:
            return
        try:
            stream = self._current_stream(self._device)
            if stream == queue.stream or len(beside) >= MOST_PENDING or queue.is_capturing():
                return
            event = queue.take_event()
            event.record(stream)
            beside.append((monotonic_ns(), place, getattr(stream, "stream_id", 0), event))
            queue.has_beside = True
        except Exception as fault:  # noqa: BLE001 - the guard
            self.answer_for(fault)

    def read_beside(self, now_ns: int) -> bool:
        """Write down marks of other streams; whether it is time to write records."""
        beside, queue, is_time = self._beside, self._queue, False
        while beside and beside[0][3].query():
            at_ns, place, stream_id, event = beside.popleft()
            device_ns = queue.latest_ns + int(queue.latest.elapsed_time(event) * 1e6)
            queue.give_event(event)
            is_time |= self._buffer.keep(
                at_ns, now_ns, queue.device, device_ns, queue.number, stream_id, place, _MARK_TAIL
            )
        queue.has_beside = bool(beside)
        return is_time

    def write(self) -> None:
        """Write the records that are held."""
        self.guest.spool.write_buffered()

    def _look(self, optimizer: Any) -> None:
        """Find out where the weights are, and the stream that is current there."""
        device = find_device(optimizer)
        if device is None:
            return
        if device != self._device and not self._turn_to(device):
            return
        self._follow(self._current_stream(device))

    def _follow(self, stream: Any) -> None:
        """Mark this stream from now on; torch's general streams are never unequal to None."""
        own = self._queue.stream
        if own is None or not stream == own:  # noqa: SIM201 - see above
            stream_id = getattr(stream, "stream_id", 0)
            # The number of a CUDA stream that torch did not make is its address; others are odd.
            if stream_id and not stream_id & 1 and self._is_cuda:
                self.guest.report_blindspot("clock of cuda", _FOREIGN, self.forbids)
                self._queue.stream = None
                return
            self._queue.stream, self._queue.stream_id = stream, stream_id

    def _turn_to(self, device: torch.device) -> bool:
        """Begin another clock; whether this device has one."""
        why = _WITHOUT_TIMING.get(device.type, "")
        if not why and device.type == "cuda":
            self._queue.make_event = lambda: torch.cuda.Event(enable_timing=True)
            self._current_stream: Callable[[Any], Any] = torch.cuda.current_stream
            self._queue.is_capturing = functools.partial(_is_capturing_on, device.index or 0)
        elif not why:
            why = self._turn_to_other(device)
        if why:
            self.guest.report_blindspot(f"clock of {device.type}", why, self.forbids)
            self.switch_off()
            return False
        self._begin_again()
        self._is_cuda = device.type == "cuda"
        self._device = device
        self._queue.number += 1
        self._queue.device = device.index or 0
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
        self._queue.make_event = lambda: torch.Event(device=device, enable_timing=True)
        self._current_stream = accelerator.current_stream
        self._queue.is_capturing = getattr(backend, "is_current_stream_capturing", lambda: False)
        return ""


def _is_capturing_on(index: int) -> bool:
    """Of a CUDA device's current stream.

    torch asks the current device, which gets a context by that although the job may use another.
    """
    if torch.cuda.current_device() == index:
        return bool(torch.cuda.is_current_stream_capturing())
    with torch.cuda.device(index):
        return bool(torch.cuda.is_current_stream_capturing())


class Around(Hook):
    """Marks before and after a call of the trainer's.

    Several times a step, and so without the frames of an ordinary hook; the clock has the guard.
    """

    name = "device clock around a call"
    forbids = DeviceClock.forbids

    def __init__(
        self, guest: Guest, clock: DeviceClock, before: MarkPlace, after: MarkPlace
    ) -> None:
        super().__init__(guest)
        self._clock = clock
        self._before, self._after = int(before), int(after)

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The callable to put in the original's place."""
        mark, end = self._clock.mark, self._clock.read_and_mark
        before, after = self._before, self._after

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if is_tracing() or not self.is_on:
                return original(*args, **kwargs)
            mark(before)
            try:
                return original(*args, **kwargs)
            finally:
                end(after)

        return watched
