"""Puts all hooks in place once TensorFlow has been imported, and takes them out again.

Keras and its parts are hooked when the job has imported them. A hook that does not fit this release
is reported as a blindspot; the others are installed all the same.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from time import monotonic_ns
from typing import TYPE_CHECKING

import tensorflow

from fuelline.record.hooks.guest import Guest, list_begun
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.tensorflow import seam
from fuelline.record.hooks.tensorflow.sources import Datasets
from fuelline.record.spool import Spool
from fuelline.schema.wire import Kind

if TYPE_CHECKING:
    from fuelline.record.hooks.hook import Hook

__all__ = ["TensorFlowHooks", "install"]

Watch = Callable[[str, Callable[[], None]], None]
"""Runs an action once a module has been imported."""

PARTS = (
    (seam.ITERATORS, "pipeline", "pipeline", "install"),
    (seam.MULTI_DEVICE, "several_devices", "pipeline", "install_several"),
    (seam.TRAINER, "training", "training", "install"),
    (seam.LEGACY, "legacy_training", "training", "install_legacy"),
    (seam.PYDATASET, "pydataset", "pydataset", "install"),
    ("keras.src.saving.saving_api", "saving", "pauses", "install_keras"),
    ("tensorflow.python.checkpoint.checkpoint", "checkpoints", "pauses", "install_checkpoint"),
)
"""The module to wait for, what is hooked, our file, and the function in it. Nothing is imported to
be hooked."""
_VITAL = ("pipeline", "training", "legacy_training")


def install(
    run_dir: str, watch: Watch, prepare: Callable[[Guest], None] = lambda _: None
) -> "TensorFlowHooks":
    """Hook the TensorFlow of this process; `prepare` gets to see the guest before."""
    installation = TensorFlowHooks(Spool(f"{run_dir}/spool"))
    prepare(installation.guest)
    for module, part, file, function in PARTS:
        watch(module, partial(installation.add, part, file, function))
    return installation


class TensorFlowHooks:
    """The hooks of one process."""

    def __init__(self, spool: Spool) -> None:
        self.guest = Guest(spool, seam.TENSORFLOW)
        self.sources = Datasets(self.guest)
        self.hooks: list[Hook] = []
        self._patches = Patches()
        facts = {
            "framework": "tensorflow",
            "version": str(tensorflow.__version__),
            "python": sys.version.split()[0],
            "begun": list_begun(),
            "program": sys.argv[0].rpartition("/")[2] if sys.argv else "",
        }
        self.guest.append(int(Kind.PROCESS), monotonic_ns(), 0, spool.text(json.dumps(facts)))

    def add(self, part: str, file: str, function: str) -> None:
        """Install the hooks of one of our files."""
        try:
            why = seam.find_unmet(part)
            if not why:
                module = import_module(f"fuelline.record.hooks.tensorflow.{file}")
                self.hooks += getattr(module, function)(self.guest, self._patches, self.sources)
                return
        except Exception as misfit:  # noqa: BLE001 - the guard of the installation
            why = f"tensorflow {tensorflow.__version__}: {type(misfit).__name__}: {misfit}"
        self.guest.spool.count_fault()
        code = "step-hook" if part in _VITAL else ""
        self.guest.report_blindspot(f"hooks {part}", why, "whatever these hooks would show", code)

    def uninstall(self) -> None:
        """Restore every original; a wrapper that someone else holds on to records no more."""
        for hook in self.hooks:
            hook.switch_off()
        self._patches.undo()
        self.hooks.clear()
        self.guest.spool.close()
