"""Puts the registry in front of torch's loaders; loads the rest with the first of them.

Runs while torch is being imported, so it touches nothing but the class that is there already. If
torch lacks something that the elastic loader is made of, every loader gets torch's own iterator.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from fuelline.fix.elastic.journal import FixJournal
from fuelline.fix.elastic.seam import list_paths
from fuelline.schema.seams import find_missing

__all__ = ["install", "leave_stateful"]


class _ProcessRegistry:
    """The registry of this process, once there is one."""

    def __init__(self) -> None:
        self.folder = ""
        self.allowed = ""
        self.crews: Any = None
        """What gives a loader workers on other hosts; None without --ray."""
        self.registry: Any = None
        self.is_refused = False

    def open(self) -> Any:
        """The registry, made when the first loader comes; None if this torch is another one."""
        if self.registry is None and not self.is_refused:
            try:
                if self.is_fit():
                    from fuelline.fix.elastic.registry import open_registry  # noqa: PLC0415 - torch is whole now

                    self.registry = open_registry(self.folder, self.allowed, self.crews)
            except Exception as misfit:  # noqa: BLE001 - the guard: the job's loader must work
                self._refuse(f"{type(misfit).__name__}: {misfit}")
        return self.registry

    def is_fit(self) -> bool:
        """Whether torch has all that the elastic loader is made of; if not, the report says so."""
        why = find_missing(list_paths())
        if why:
            self._refuse(why)
        return not why

    def _refuse(self, why: str) -> None:
        self.is_refused = True
        FixJournal(self.folder).write("left", loader="every DataLoader", why=why)


_FRONT = _ProcessRegistry()


def install(run_dir: str, allowed: str, crews: Any = None) -> None:
    """Serve the loaders of this process; `crews` gives them workers on other hosts."""
    _FRONT.folder, _FRONT.allowed, _FRONT.crews = f"{run_dir}/fix", allowed, crews
    owner = sys.modules["torch.utils.data.dataloader"].DataLoader
    if not hasattr(owner, "_get_iterator"):
        _FRONT.is_fit()
        return
    original = owner._get_iterator

    @functools.wraps(original)
    def get_iterator(self: Any) -> Any:
        registry = _FRONT.open()
        return original(self) if registry is None else registry.serve(self, original)

    owner._get_iterator = get_iterator


def leave_stateful() -> None:
    """Say of torchdata's loader, which builds its iterators itself, that it is left alone."""
    owner = sys.modules["torchdata.stateful_dataloader.stateful_dataloader"].StatefulDataLoader
    original = owner._get_iterator

    @functools.wraps(original)
    def get_iterator(self: Any) -> Any:
        registry = _FRONT.open()
        if registry is not None:
            registry.leave_stateful(self)
        return original(self)

    owner._get_iterator = get_iterator
