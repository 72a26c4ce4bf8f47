"""Puts all hooks in place once torch has been imported, and takes them out again.

A part of torch that is not loaded yet is hooked when it is. A hook that does not fit this version
of torch is reported as a blindspot; the others are installed all the same.
"""

import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import torch

from fuelline.record.hooks.guest import Guest, join, list_begun
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.torch import seam
from fuelline.record.hooks.waits import watch_waits
from fuelline.record.spool import Spool
from fuelline.schema.wire import ZOOM_VARIABLE

if TYPE_CHECKING:
    from fuelline.record.hooks.hook import Hook

__all__ = ["Installation", "install"]

Watch = Callable[[str, Callable[[], None]], None]
"""Runs an action once a module has been imported."""

LOADING = (("worker", "install"), ("transfer", "install_pinning"), ("loader", "install"))
"""Hooks on `torch.utils.data`, as below."""
COPIES = (("transfer", "install_copies"), ("transfer", "install_reads"))
CLOCK = (("device_clock", "install"),)
"""Hooks for an accelerator: put in at once if torch was built for one, else when a plug-in's is
seen."""
PARTS = (
    ("torch.optim.optimizer", "training", "install"),
    ("torch.distributed.distributed_c10d", "collectives", "install"),
    ("torch.distributed.distributed_c10d", "coalesced", "install"),
    ("torch.distributed.distributed_c10d", "sends", "install"),
    ("torch.distributed._functional_collectives", "functional", "install"),
    ("torch.nn.parallel.distributed", "ddp", "install"),
    ("torchdata.stateful_dataloader.stateful_dataloader", "loader", "install_stateful"),
    ("torch._dynamo.eval_frame", "dynamo", "install"),
    ("torch.distributed.checkpoint.state_dict_saver", "pauses", "install_distributed"),
    ("safetensors.torch", "pauses", "install_safetensors"),
    ("lightning.fabric.utilities.cloud_io", "pauses", "install_lightning"),
    ("lightning_fabric.utilities.cloud_io", "pauses", "install_fabric"),
)
"""The module to wait for, our file, and the function in it. Nothing is imported to be hooked."""

_ON_EVERY_STEP = ("loader", "training")
"""Files without whose hooks the time between two events is not known."""


def install(
    run_dir: str, watch: Watch, prepare: Callable[[Guest], None] = lambda _: None
) -> "Installation":
    """Hook the torch that this process has imported; `prepare` gets to see the guest before."""
    installation = Installation(join(run_dir, seam.TORCH))
    prepare(installation.guest)
    installation.add_all(watch)
    request = os.environ.get(ZOOM_VARIABLE)
    if request:
        watch(
            "torch.optim.optimizer", lambda: installation.add("zoom", "install", run_dir, request)
        )
    installation.introduce()
    return installation


class Installation:
    """The hooks of one process."""

    def __init__(self, place: Guest | Spool) -> None:
        self.guest = guest = place if isinstance(place, Guest) else Guest(place, seam.TORCH)
        guest.on_appointment(self.introduce_trainer)
        self.guest.is_learning = torch.is_grad_enabled
        self._patches = Patches()
        self.hooks: list[Hook] = []

    def add_all(self, watch: Watch) -> None:
        """Install everything that fits, now or when its part of torch is imported."""
        self.add("pauses", "install")
        watch("torch.utils.data", partial(self._add_each, LOADING))
        for awaited, file, function in PARTS:
            watch(awaited, partial(self.add, file, function))
        watch_waits(self.guest, self._patches, watch, self.hooks.append)
        if _can_have_device():
            self._add_each(COPIES)
            watch("torch.utils.data", partial(self._add_each, CLOCK))
        else:
            self.guest.meet_device = self._meet_device

    def _meet_device(self) -> None:
        """An accelerator that came with a plug-in has weights on it: this torch has one."""
        self.guest.meet_device = None
        self._tell_process({"devices": None})
        self._add_each((*COPIES, *CLOCK))
        if "torch._dynamo.eval_frame" in sys.modules:
            self.add("dynamo", "install")  # once more, for the files that were loaded just now

    def _add_each(self, parts: tuple[tuple[str, str], ...]) -> None:
        for file, function in parts:
            self.add(file, function)

    def add(self, file: str, function: str, *more: str) -> None:
        """Install the hooks of one of our files."""
        try:
            self.guest.framework = seam.TORCH  # another one may have come to this process since
            why = seam.find_unmet(file, function)
            if not why:
                module = import_module(f"fuelline.record.hooks.torch.{file}")
                self.hooks += getattr(module, function)(self.guest, self._patches, *more)
                return
        except Exception as misfit:  # noqa: BLE001 - the guard of the installation
            why = f"torch {torch.__version__}: {type(misfit).__name__}: {misfit}"
        self.guest.spool.count_fault()
        code = "step-hook" if file in _ON_EVERY_STEP else ""
        self.guest.report_blindspot(f"hooks {file}", why, "whatever these hooks would show", code)

    def uninstall(self) -> None:
        """Restore every original; a wrapper that someone else holds on to records no more."""
        for hook in self.hooks:
            hook.switch_off()
        self._patches.undo()
        self.hooks.clear()
        self.guest.leave()

    def introduce(self) -> None:
        """Write down which process this is, without asking torch anything that it would set up."""
        self._tell_process({})

    def introduce_trainer(self) -> None:
        """Write it down again when training begins, with what is settled by then."""
        self._tell_process({"threads": torch.get_num_threads()})

    def _tell_process(self, more: dict[str, int | None]) -> None:
        facts = {
            "framework": "torch",
            "version": str(torch.__version__),
            "devices": None if _can_have_device() else 0,
            "python": sys.version.split()[0],
            "begun": list_begun(),
            "program": sys.argv[0].rpartition("/")[2] if sys.argv else "",
            **more,
        }
        self.guest.introduce(facts)


def _can_have_device() -> bool:
    """Whether this torch can have an accelerator; asks no driver and initialises nothing."""
    version = torch.version
    builds = (version.cuda, version.hip, getattr(version, "xpu", None))
    return any(builds) or bool(torch.backends.mps.is_built())
