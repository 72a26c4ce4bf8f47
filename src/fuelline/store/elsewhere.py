"""Which runs are outside the store: `run --run-dir`, `import -o`.

One small file a run, named as a run in the store would be, that holds the folder's path: two jobs
that start at once do not disturb each other. What it names may be gone or be something else by
now; then it counts for nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from fuelline.schema.files import list_below, make_folder, read_below, write_whole
from fuelline.store.home import home_folder

MOST_NOTES = 200
"""A sweep over a night makes as many; beyond them the oldest are forgotten, their runs stay."""
_MOST_BYTES = 4096
"""PATH_MAX of Linux (limits.h)."""


def note_elsewhere(run_id: str, run_dir: Path) -> None:
    """Write down where a run is; OSError if that cannot be done."""
    folder = _notes_folder()
    make_folder(folder, is_new=False)
    with write_whole(folder / run_id) as file:
        file.write(os.fsencode(run_dir.absolute()))
    for name in _list(folder)[:-MOST_NOTES]:
        (folder / name).unlink(missing_ok=True)


def list_elsewhere() -> list[tuple[Path, str]]:
    """Folders and the ids of their runs; of several notes about one folder the newest counts."""
    folder = _notes_folder()
    found: dict[Path, str] = {}
    try:
        for name in _list(folder):
            content = _read(folder, name)
            if content.startswith(b"/") and b"\0" not in content:
                found[Path(os.fsdecode(content))] = name
    except OSError:
        return []  # no run was recorded elsewhere yet
    return list(found.items())


def _list(folder: Path) -> list[str]:
    """Without those that are being written."""
    return [name for name in list_below(folder) if not name.startswith(".")]


def _read(folder: Path, name: str) -> bytes:
    try:
        return read_below(folder, name, _MOST_BYTES)
    except OSError:  # a link, or forgotten since
        return b""


def _notes_folder() -> Path:
    return home_folder() / "elsewhere"
