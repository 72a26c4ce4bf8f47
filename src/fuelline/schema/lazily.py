"""Names of a room that are loaded when they are first asked for.

A command uses few of the files of a room, and loading all of them costs more than half a second of
processor time (bench/trace_import.py counts it). A room's `__init__` lists its names for readers
and type checkers as usual, under TYPE_CHECKING, and where each of them lives.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def load_lazily(room: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a room whose names live in these of its files."""

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        return getattr(import_module(f"{room}.{homes[name]}"), name)

    return load
