"""Puts the registry in front of torch's loaders; loads the rest with the first of them.

Runs while torch is being imported, so it touches nothing but the class that is there already.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

__all__ = ["install", "leave_stateful"]


class _Front:
    """The registry of this process, once there is one."""

    def __init__(self) -> None:
        self.folder = ""
        self.allowed = ""
        self.registry: Any = None

    def open(self) -> Any:
        """The registry, made when the first loader comes."""
        if self.registry is None:
            from fuelline.fix.elastic.registry import open_registry  # noqa: PLC0415 - torch is whole now

            self.registry = open_registry(self.folder, self.allowed)
        return self.registry


_FRONT = _Front()


def install(run_dir: str, allowed: str) -> None:
    """Serve the loaders of this process."""
    _FRONT.folder, _FRONT.allowed = f"{run_dir}/fix", allowed
    owner = sys.modules["torch.utils.data.dataloader"].DataLoader
    original = owner._get_iterator

    @functools.wraps(original)
    def get_iterator(self: Any) -> Any:
        return _FRONT.open().serve(self, original)

    owner._get_iterator = get_iterator


def leave_stateful() -> None:
    """Say of torchdata's loader, which builds its iterators itself, that it is left alone."""
    owner = sys.modules["torchdata.stateful_dataloader.stateful_dataloader"].StatefulDataLoader
    original = owner._get_iterator

    @functools.wraps(original)
    def get_iterator(self: Any) -> Any:
        _FRONT.open().leave_stateful(self)
        return original(self)

    owner._get_iterator = get_iterator
