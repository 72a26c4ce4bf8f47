"""What runs first on the other host: brings the code, so that nothing need be installed there.

`start` gets all that it needs in one piece. Modules that came with it are imported from memory,
before any that are there: the worker runs the code that the trainer has. Standard library only, and
nothing of the package: this file is sent as text.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import pickle
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import types

__all__ = ["SourceFinder", "start"]


class SourceFinder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports modules from their source: name to (path, text, whether it is a package)."""

    def __init__(self) -> None:
        self.sources: dict[str, tuple[str, str, bool]] = {}

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """As the import system asks."""
        del path, target
        if fullname not in self.sources:
            return None
        origin, _, is_package = self.sources[fullname]
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=origin, is_package=is_package)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [os.path.dirname(origin)]  # noqa: PTH120 - no pathlib
        return spec

    def get_source(self, fullname: str) -> str:
        """Also for tracebacks."""
        return self.sources[fullname][1]

    def get_code(self, fullname: str) -> types.CodeType:
        """Compiled under the path that it has in the trainer."""
        origin, text, _ = self.sources[fullname]
        return compile(text, origin, "exec", dont_inherit=True)

    def is_package(self, fullname: str) -> bool:
        """Whether there are modules below."""
        return self.sources[fullname][2]


def start(given: bytes) -> None:
    """Work until the job is over; then this process ends."""
    parts = pickle.loads(given)
    finder = SourceFinder()
    finder.sources.update(parts["sources"])
    sys.meta_path.insert(0, finder)
    for name in [each for each in sys.modules if each.partition(".")[0] == "fuelline"]:
        del sys.modules[name]  # of another version, maybe
    # Found in memory: only from here on.
    from fuelline.fix.remote.worker import work  # noqa: PLC0415

    work(parts["address"], parts["secret"], parts["number"], finder)
