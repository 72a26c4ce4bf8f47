"""Puts the hooks on grain's iterators in place once grain has been imported.

The outermost `next()` of the thread that trains is the wait; those within it are part of it. Who
reads and prepares is found by its reader, as for any source
(`signals/recorded/fetching/feeders.py`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fuelline.record.hooks.grain import seam
from fuelline.record.hooks.guest import Guest, join
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.sources import TakeElement
from fuelline.record.hooks.waits import watch_waits

if TYPE_CHECKING:
    from fuelline.record.hooks.hook import Hook

__all__ = ["GrainHooks", "install"]

Watch = Callable[[str, Callable[[], None]], None]
"""Runs an action once a module has been imported."""
FIRST_ID = 1 << 21
"""Sources of torch are numbered from 1, in the same process."""


def install(
    run_dir: str, watch: Watch, prepare: Callable[[Guest], None] = lambda _: None
) -> "GrainHooks":
    """Hook the grain of this process; `prepare` gets to see the guest before."""
    installation = GrainHooks(join(run_dir, seam.GRAIN))
    prepare(installation.guest)
    installation.add()
    watch_waits(installation.guest, installation.patches, watch, installation.hooks.append)
    return installation


class GrainHooks:
    """The hooks of one process."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.patches = Patches()
        self.hooks: list[Hook] = []

    def add(self) -> None:
        """Wrap `__next__` of all iterators."""
        why = seam.find_unmet()
        if why:
            self.guest.report_blindspot("hooks grain", why, "what these hooks would show")
            return
        take = TakeGrainBatch(self.guest)
        for owner in seam.find_iterators():
            self.patches.replace(owner, "__next__", take.wrap(vars(owner)["__next__"]))
        self.hooks.append(take)

    def uninstall(self) -> None:
        """Restore every original; a wrapper that someone else holds on to records no more."""
        for hook in self.hooks:
            hook.switch_off()
        self.patches.undo()
        self.hooks.clear()
        self.guest.leave()


class TakeGrainBatch(TakeElement):
    """`next(iterator)` of any of grain's iterators."""

    name = "grain wait"
    first_id = FIRST_ID

    def describe(self, iterator: Any) -> dict[str, Any]:
        """Its iterators from the outermost inwards, and their settings."""
        found = seam.list_inside(iterator)
        names = [type(each).__name__ for each in found]
        return {
            "loader": f"grain {names[0]}",
            "framework": "grain",
            "nodes": [
                {"id": at, "name": name, "inputs": [at + 1] if at + 1 < len(names) else []}
                for at, name in enumerate(names)
            ],
            **seam.read_settings(found),
        }
