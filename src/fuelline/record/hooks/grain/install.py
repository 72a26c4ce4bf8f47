"""Puts the hooks on grain's iterators in place once grain has been imported.

The outermost `next()` of the thread that trains is the wait; those within it are part of it. Who
reads and prepares is found by its reader, as for any source
(`signals/recorded/fetching/feeders.py`).
"""

import json
import weakref
from _thread import get_ident
from collections.abc import Callable
from multiprocessing import parent_process
from time import monotonic_ns
from typing import Any

from fuelline.record.hooks.grain import seam
from fuelline.record.hooks.guest import Guest, join
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.waits import watch_waits
from fuelline.schema.wire import Flag, Kind, Phase

__all__ = ["GrainHooks", "install"]

Watch = Callable[[str, Callable[[], None]], None]
"""Runs an action once a module has been imported."""
FIRST_ID = 1 << 21
"""Sources of torch are numbered from 1, in the same process."""
_WAIT_KIND, _SOURCE_KIND = int(Kind.WAIT), int(Kind.SOURCE)
_TRAINING, _END, _ERROR = int(Flag.TRAINING), int(Flag.END), int(Flag.ERROR)
_WAIT, _COMPUTE, _OUTSIDE = int(Phase.WAIT), int(Phase.COMPUTE), int(Phase.OUTSIDE)


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
        take = TakeElement(self.guest)
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


class TakeElement(Hook):
    """`next(iterator)` of any of grain's iterators."""

    name = "grain wait"
    code = "step-hook"
    forbids = "saying how long the training waited for data"

    def __init__(self, guest: Guest) -> None:
        super().__init__(guest)
        self._forget()
        guest.on_fork(self._forget)

    def _forget(self) -> None:
        self._last: weakref.ref[Any] | None = None
        self._source_id = FIRST_ID - 1
        self._position = 0

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the start, of an outermost call of the thread that trains."""
        guest, ident = self.guest, get_ident()
        if ident in guest.waiting or ident in guest.fetching:
            return None
        if ident != guest.trainer:
            if guest.trainer or parent_process() is not None:
                return None  # a worker of grain's; one that trains is known by its steps
            guest.appoint()
        guest.is_fed = True
        guest.waiting.add(ident)
        before = guest.enter(_WAIT)
        return ident, args[0], before, monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record the wait and the size of the batch."""
        now_ns = monotonic_ns()
        ident, iterator, _, start_ns = ticket
        guest = self.guest
        guest.waiting.discard(ident)
        if self._last is None or self._last() is not iterator:
            self._meet(iterator)
        flags, samples = _TRAINING, 0
        if error is None:
            samples = _count_samples(result)
            guest.enter(_COMPUTE)
        else:
            flags |= _END if isinstance(error, StopIteration) else _ERROR
            guest.enter(_OUTSIDE)
        guest.append(
            _WAIT_KIND, start_ns, now_ns - start_ns, self._source_id, samples, -1, -1,
            self._position, flags,
        )  # fmt: skip
        self._position += 1

    def withdraw(self) -> None:
        """This thread waits for no batch."""
        self.guest.waiting.discard(get_ident())
        self.guest.enter(_OUTSIDE)

    def _meet(self, iterator: Any) -> None:
        """An iterator that is new: it begins an epoch, or is another source."""
        found = seam.list_inside(iterator)
        names = [type(each).__name__ for each in found]
        facts = {
            "loader": f"grain {names[0]}",
            "framework": "grain",
            "nodes": [
                {"id": at, "name": name, "inputs": [at + 1] if at + 1 < len(names) else []}
                for at, name in enumerate(names)
            ],
            **seam.read_settings(found),
        }
        self._last = weakref.ref(iterator)
        self._source_id, self._position = self._source_id + 1, 0
        text = self.guest.spool.text(json.dumps(facts))
        self.guest.append(_SOURCE_KIND, monotonic_ns(), 0, self._source_id, text)


def _count_samples(batch: Any) -> int:
    """Length of the first array's first dimension; -1 if it has none."""
    while isinstance(batch, tuple | list | dict) and batch:
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    shape = getattr(batch, "shape", None)
    return int(shape[0]) if isinstance(shape, tuple) and shape else -1
