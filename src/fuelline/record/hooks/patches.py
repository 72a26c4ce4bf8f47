"""Attributes that were replaced, and how they get back exactly what they were."""

from collections.abc import Callable
from typing import Any

__all__ = ["Patches"]


class Patches:
    """Replaces attributes of modules and classes and restores them in reverse."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute; an inherited one is covered, and uncovered again by `undo`."""
        was_own = name in vars(owner)
        original = vars(owner).get(name)

        def restore() -> None:
            if vars(owner).get(name) is not value:
                return  # someone has wrapped our wrapper since, and must keep what it holds
            if was_own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)

        setattr(owner, name, value)
        self._undo.append(restore)

    def on_undo(self, action: Callable[[], None]) -> None:
        """Add something else to do when everything is taken back."""
        self._undo.append(action)

    def undo(self) -> None:
        """Take everything back."""
        while self._undo:
            self._undo.pop()()
