"""What the loop stands still for: checkpoints, and Keras's own validation."""

import os
import sys
from time import monotonic_ns
from typing import Any

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.tensorflow.sources import Datasets
from fuelline.schema.redaction import redact
from fuelline.schema.wire import Flag, Kind, PauseKind, Phase

__all__ = ["Pause", "install_checkpoint", "install_keras"]

_PAUSE_KIND, _ERROR = int(Kind.PAUSE), int(Flag.ERROR)


def install_keras(guest: Guest, patches: Patches, _sources: Datasets) -> list[Hook]:
    """Watch `model.save`, `save_weights` and whatever calls them, such as ModelCheckpoint."""
    owner = sys.modules["keras.src.saving.saving_api"]
    return _watch(guest, patches, owner, ("save_model", "save_weights"))


def install_checkpoint(guest: Guest, patches: Patches, _sources: Datasets) -> list[Hook]:
    """Watch `tf.train.Checkpoint`, and so CheckpointManager."""
    owner = sys.modules["tensorflow.python.checkpoint.checkpoint"].Checkpoint
    return _watch(guest, patches, owner, ("save", "write"))


def _watch(guest: Guest, patches: Patches, owner: Any, names: tuple[str, ...]) -> list[Hook]:
    pause = Pause(guest, PauseKind.CHECKPOINT, Phase.CHECKPOINT)
    for name in names:
        patches.replace(owner, name, pause.wrap(getattr(owner, name)))
    return [pause]


class Pause(Hook):
    """A call that the training thread stands still for; one inside another is part of it."""

    name = "pause"
    forbids = "telling checkpoints and validation from the rest of the loop"

    def __init__(self, guest: Guest, kind: PauseKind, phase: Phase) -> None:
        super().__init__(guest)
        self._kind, self._phase = int(kind), int(phase)

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start."""
        target = kwargs.get("filepath") or (args[1] if len(args) > 1 else None)
        return target, self.guest.enter(self._phase), monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record it, with what is written if that is a path."""
        target, before, start_ns = ticket
        dur_ns = monotonic_ns() - start_ns
        if before is not None:
            self.guest.enter(before)
        text = 0
        if self._kind == PauseKind.CHECKPOINT and isinstance(target, (str, os.PathLike)):
            text = self.guest.spool.text(redact(os.fspath(target)))
        flags = 0 if error is None else _ERROR
        self.guest.append(_PAUSE_KIND, start_ns, dur_ns, -1, text, self._kind, flags=flags)
