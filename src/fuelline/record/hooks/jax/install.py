"""Puts all hooks in place once JAX has been imported, and takes them out again."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

import jax

from fuelline.record.hooks.guest import Guest, join
from fuelline.record.hooks.jax import seam
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.waits import watch_waits

if TYPE_CHECKING:
    from fuelline.record.hooks.hook import Hook

__all__ = ["JaxHooks", "install"]

Watch = Callable[[str, Callable[[], None]], None]
"""Runs an action once a module has been imported."""
FILES = ("steps", "reads", "compiling")


def install(
    run_dir: str, watch: Watch, prepare: Callable[[Guest], None] = lambda _: None
) -> "JaxHooks":
    """Hook the JAX of this process; `prepare` gets to see the guest before."""
    installation = JaxHooks(join(run_dir, seam.JAX))
    prepare(installation.guest)
    for file in FILES:
        installation.add(file)
    watch_waits(installation.guest, installation.patches, watch, installation.hooks.append)
    return installation


class JaxHooks:
    """The hooks of one process."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.hooks: list[Hook] = []
        self.patches = Patches()
        facts = {
            "framework": "jax",
            "version": str(jax.__version__),
            "python": sys.version.split()[0],
            "program": sys.argv[0].rpartition("/")[2] if sys.argv else "",
        }
        guest.introduce(facts)

    def add(self, file: str) -> None:
        """Install the hooks of one of our files."""
        try:
            self.guest.framework = seam.JAX
            why = seam.find_unmet(file)
            if not why:
                module = import_module(f"fuelline.record.hooks.jax.{file}")
                self.hooks += module.install(self.guest, self.patches)
                return
        except Exception as misfit:  # noqa: BLE001 - the guard of the installation
            why = f"jax {jax.__version__}: {type(misfit).__name__}: {misfit}"
        self.guest.spool.count_fault()
        code = "step-hook" if file == "steps" else ""
        self.guest.report_blindspot(f"hooks {file}", why, "whatever these hooks would show", code)

    def uninstall(self) -> None:
        """Restore every original; a wrapper that someone else holds on to records no more."""
        for hook in self.hooks:
            hook.switch_off()
        self.patches.undo()
        self.hooks.clear()
        self.guest.leave()
