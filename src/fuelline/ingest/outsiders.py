"""Importers of other packages, asked about files that none of ours knows.

One that fails when it looks at a file does not know it, and is reported; one that fails when it
reads a file is an InputError, as a damaged file is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.errors import InputError
from fuelline.store.entry_points import load_plugins

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fuelline.ingest.importer import Imported, Importer, PartWriter
    from fuelline.schema.run.recording import Blindspot
    from fuelline.store.entry_points import Plugin

_failed: dict[str, Blindspot] = {}
"""Plug-in to why it could not say whether it knows a file."""


class Outsider:
    """An importer of another package, whose failures are reported."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin

    @property
    def format(self) -> str:
        """See `Importer`."""
        return str(self._plugin.made.format)

    def recognises(self, head: bytes) -> bool:
        """See `Importer`."""
        try:
            return bool(self._plugin.made.recognises(head))
        except Exception as error:  # noqa: BLE001 - somebody else's code: reported, no crash
            _failed[self._plugin.name] = self._plugin.excuse(error)
            return False

    def read(
        self,
        path: Path,
        rank: int,
        writer: PartWriter,
        *,
        partial: bool,
        advance: Callable[[int], None],
    ) -> Imported:
        """See `Importer`."""
        try:
            imported: Imported = self._plugin.made.read(
                path, rank, writer, partial=partial, advance=advance
            )
        except (InputError, OSError):
            raise
        except Exception as error:
            spot = self._plugin.excuse(error)
            raise InputError(
                f"{path} could not be read by {spot.what}: {spot.why}. Nothing was imported. Tell "
                "the plug-in's author, or uninstall it."
            ) from error
        return imported


def list_outsiders() -> list[Outsider]:
    """All that are installed."""
    return [Outsider(plugin) for plugin in load_plugins("fuelline.importers").plugins]


def find_outsider(head: bytes) -> Importer | None:
    """The first that knows a file by its first bytes."""
    return next((each for each in list_outsiders() if each.recognises(head)), None)


def list_lost() -> list[Blindspot]:
    """Those that could not be loaded or failed, if any was asked in this process."""
    if not load_plugins.cache_info().currsize:
        return []
    return [*load_plugins("fuelline.importers").problems, *_failed.values()]
