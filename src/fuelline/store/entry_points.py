"""What others have installed for us: rules and importers that packages announce as entry points.

A look at the folders of `sys.path` shows whether there is any: 0.8 ms with 48 packages, where
`importlib.metadata` takes 23 (medians of nine processes; tests/contract/test_plugins.py bounds the
first). Only what is announced for us is loaded, and only when it is needed. The working directory
does not count, whoever may have put it on the path: a folder that came from somebody else, a run
say, must not bring code. What cannot be loaded is a Blindspot, and the others are used all the
same.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from fuelline.schema.redaction import redact
from fuelline.schema.run.recording import Blindspot

if TYPE_CHECKING:
    from collections.abc import Iterator

Group = Literal["fuelline.importers", "fuelline.rules"]
_NEEDED: dict[Group, tuple[str, ...]] = {
    "fuelline.importers": ("format", "recognises", "read"),
    "fuelline.rules": ("code", "name", "stage", "limit", "check"),
}
_COSTS: dict[Group, str] = {
    "fuelline.importers": "reading files in its format",
    "fuelline.rules": "naming what its rule would find",
}


@dataclass(frozen=True)
class Plugin:
    """One object of somebody else's package."""

    name: str
    """`package: entry point`, for people."""
    made: Any
    group: Group

    def excuse(self, error: BaseException) -> Blindspot:
        """What it costs that the plug-in has failed."""
        return _excuse(self.name, self.group, f"it failed: {_say(error)}")


@dataclass(frozen=True)
class Installed:
    """What a group has."""

    plugins: tuple[Plugin, ...] = ()
    problems: tuple[Blindspot, ...] = ()
    """Those that could not be loaded."""


@cache
def load_plugins(group: Group) -> Installed:
    """All that is announced for a group, sorted by name; looked for once per process."""
    plugins: list[Plugin] = []
    problems: list[Blindspot] = []
    for folder in _find_announced(group):
        for name, point in sorted(_read_points(folder, group), key=lambda pair: pair[0]):
            made = _make(name, point, group)
            if isinstance(made, Plugin):
                plugins.append(made)
            else:
                problems.append(made)
    return Installed(tuple(plugins), tuple(problems))


def _find_announced(group: Group) -> list[str]:
    """Folders of installed packages that announce something for a group; the first of a name."""
    found: dict[str, str] = {}
    header = f"[{group}]".encode()
    for folder in _list_places():
        for entry in _list_metadata(folder):
            try:
                with open(f"{entry}/entry_points.txt", "rb") as file:  # noqa: PTH123 - many of them
                    is_ours = header in file.read()
            except OSError:
                continue  # most packages announce nothing
            if is_ours:
                package = os.path.basename(entry).partition("-")[0].lower()  # noqa: PTH119
                found.setdefault(package, entry)
    return sorted(found.values())


def _list_places() -> list[str]:
    """Where packages are installed; not the working directory."""
    here = os.path.realpath(".")
    return [place for place in dict.fromkeys(sys.path) if place and os.path.realpath(place) != here]


def _list_metadata(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as listing:
            names = [
                each.path for each in listing if each.name.endswith((".dist-info", ".egg-info"))
            ]
    except OSError:
        return []
    return sorted(names)


def _read_points(folder: str, group: Group) -> Iterator[tuple[str, Any]]:
    from importlib.metadata import Distribution  # noqa: PLC0415 - as the text says
    from pathlib import Path  # noqa: PLC0415

    package = Distribution.at(Path(folder))
    for point in package.entry_points:
        if point.group == group:
            yield f"{package.metadata['Name']}: {point.name}", point


def _make(name: str, point: Any, group: Group) -> Plugin | Blindspot:
    """The object that is announced, of a class one that is made without arguments."""
    try:
        loaded = point.load()
        made = loaded() if isinstance(loaded, type) else loaded
        lacking = next((each for each in _NEEDED[group] if not hasattr(made, each)), None)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody else's code: reported, no crash
        return _excuse(name, group, f"it could not be loaded: {_say(error)}")
    if lacking is not None:
        return _excuse(name, group, f"it could not be loaded: {point.value} has no {lacking}")
    return Plugin(name, made, group)


def _excuse(name: str, group: Group, why: str) -> Blindspot:
    return Blindspot(what=f"the plug-in {name}", why=why, forbids=_COSTS[group])


def _say(error: BaseException) -> str:
    words = next(iter(str(error).splitlines()), "")[:200]
    return redact(f"{type(error).__name__}: {words}" if words else type(error).__name__)
