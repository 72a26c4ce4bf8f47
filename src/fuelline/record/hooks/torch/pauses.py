"""What stops a training between its steps: checkpoints, explicit synchronisation, collections.

Also here: ways to write a checkpoint beside `torch.save`: of the frameworks, and of torch for many
ranks.

Each is watched when its module has been imported, before another module can take the function out
of it. Those that call `torch.save` on their way contain it: the outer record is the longer one.
"""

import gc
import io
import os
import sys
from time import monotonic_ns
from typing import Any

import torch

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.schema.redaction import redact
from fuelline.schema.wire import Flag, Kind, MarkPlace, PauseKind, Phase, tail

__all__ = ["Save", "install"]

SHORTEST_COLLECTION_NS = 1_000_000
"""Young collections take microseconds and come a hundred times a second; nobody waits for those."""

_PAUSE_KIND, _SYNC, _GC = int(Kind.PAUSE), int(Kind.SYNC), int(Kind.GC)
_SAVING, _OUTSIDE = int(Phase.CHECKPOINT), int(Phase.OUTSIDE)
_CHECKPOINT = int(PauseKind.CHECKPOINT)
_ERROR = int(Flag.ERROR)
_UNKNOWN_BYTES = -1
_CURRENT_DEVICE = -1
_PAUSE_BEGIN, _PAUSE_END = int(MarkPlace.PAUSE_BEGIN), int(MarkPlace.PAUSE_END)
_SYNC_BEGIN = int(MarkPlace.SYNC_BEGIN)


def install(guest: Guest, patches: Patches) -> list[Hook]:
    """Watch `torch.save`, the synchronisations of all backends, and the garbage collector."""
    save, sync = Save(guest), Sync(guest)
    watched_save = save.wrap(torch.serialization.save)
    for owner in (torch.serialization, torch):
        patches.replace(owner, "save", watched_save)
    for backend in ("cuda", "xpu", "mps", "accelerator"):
        synchronize = getattr(getattr(torch, backend, None), "synchronize", None)
        if synchronize is not None:
            patches.replace(getattr(torch, backend), "synchronize", sync.wrap(synchronize))
    _watch_collections(guest, patches)
    return [save, sync]


def _watch_collections(guest: Guest, patches: Patches) -> None:
    """Python calls us before and after each collection.

    On entering a function of its own Python runs the handlers of signals that have arrived, and
    what a handler raises in a callback of the collector is lost: a Ctrl-C that never ends the job.
    So only a compiled function may be called; `fuelline doctor` says whether there is one.
    """
    notice = guest.spool.buffer.notice
    if notice is None:
        guest.report_blindspot(
            "garbage collections",
            "fuelline runs without its compiled part, record/_buffer, here",
            "telling how long garbage collections keep the training",
        )
        return
    guest.spool.buffer.watch_collections(SHORTEST_COLLECTION_NS, tail(_GC))
    gc.callbacks.append(notice)
    patches.on_undo(lambda: gc.callbacks.remove(notice))


class Save(Hook):
    """`torch.save` or the like: a checkpoint."""

    name = "checkpoint"
    forbids = "telling how long checkpoints keep the training"

    def __init__(self, guest: Guest, keyword: str = "f") -> None:
        super().__init__(guest)
        self._keyword = keyword
        """What the second argument is called: the file."""

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start."""
        target = args[1] if len(args) > 1 else kwargs.get(self._keyword)
        before = self.guest.enter(_SAVING)
        clock = self.guest.device_clock
        if clock is not None:
            clock.mark(_PAUSE_BEGIN)
        return target, _position(target), before, monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it with its size and, if there is one, its path."""
        target, position, before, start_ns = ticket
        dur_ns = monotonic_ns() - start_ns
        clock = self.guest.device_clock
        if clock is not None:
            clock.mark(_PAUSE_END)
        if before is not None:
            self.guest.enter(before)
        path = _path(target)
        size_bytes = _size(target, path, position) if error is None else _UNKNOWN_BYTES
        text_id = self.guest.spool.text(redact(path)) if path else 0
        flags = 0 if error is None else _ERROR
        self.guest.append(
            _PAUSE_KIND, start_ns, dur_ns, size_bytes, text_id, _CHECKPOINT, flags=flags
        )

    def withdraw(self) -> None:
        """Nothing is being saved."""
        self.guest.enter(_OUTSIDE)


def _path(target: Any) -> str:
    """Where a checkpoint goes; empty if it is not a file that can be named without running code."""
    if isinstance(target, str):
        return target
    if type(target) is io.BufferedWriter:
        return target.name if isinstance(target.name, str) else ""
    if isinstance(target, os.PathLike) and type(target).__module__.startswith("pathlib"):
        return str(target)
    return ""


def _position(target: Any) -> int:
    if type(target) in {io.BytesIO, io.BufferedWriter} and target.seekable():
        return int(target.tell())
    return _UNKNOWN_BYTES


def _size(target: Any, path: str, position: int) -> int:
    if position >= 0:
        return max(_position(target) - position, _UNKNOWN_BYTES)
    try:
        return os.stat(path).st_size if path else _UNKNOWN_BYTES  # noqa: PTH116 - no pathlib here
    except OSError:
        return _UNKNOWN_BYTES


class Sync(Hook):
    """The job waits for the device by name. What `.item()` waits for is not seen here."""

    name = "explicit synchronisation"
    forbids = "telling how long explicit synchronisations take"

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start."""
        device = args[0] if args else kwargs.get("device")
        clock = self.guest.device_clock
        if clock is not None:
            clock.mark(_SYNC_BEGIN)
        return device, monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it."""
        device, start_ns = ticket
        dur_ns = monotonic_ns() - start_ns
        clock = self.guest.device_clock
        if clock is not None:
            clock.read()
        index = device.index if isinstance(device, torch.device) else device
        number = index if type(index) is int else _CURRENT_DEVICE
        flags = 0 if error is None else _ERROR
        self.guest.append(_SYNC, start_ns, dur_ns, number, flags=flags)


def install_safetensors(guest: Guest, patches: Patches) -> list[Hook]:
    """Hugging Face's Trainer and Accelerate write weights this way, without `torch.save`."""
    return _watch(guest, patches, "safetensors.torch", "save_file", "filename")


def install_lightning(guest: Guest, patches: Patches) -> list[Hook]:
    """Lightning lets `torch.save` write to memory and then writes that to the file."""
    module = "lightning.fabric.utilities.cloud_io"
    return _watch(guest, patches, module, "_atomic_save", "filepath")


def install_fabric(guest: Guest, patches: Patches) -> list[Hook]:
    """The same under the name it has in `pytorch_lightning`."""
    module = "lightning_fabric.utilities.cloud_io"
    return _watch(guest, patches, module, "_atomic_save", "filepath")


def install_distributed(guest: Guest, patches: Patches) -> list[Hook]:
    """Sharded checkpoints: every rank writes its part."""
    module = "torch.distributed.checkpoint.state_dict_saver"
    return _watch(guest, patches, module, "save", "checkpoint_id")


def _watch(guest: Guest, patches: Patches, module: str, function: str, keyword: str) -> list[Hook]:
    owner, save = sys.modules[module], Save(guest, keyword)
    patches.replace(owner, function, save.wrap(getattr(owner, function)))
    return [save]
