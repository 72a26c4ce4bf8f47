"""What `fuelline probe` measured on this machine, so that a diagnosis can quote it later.

One file for each folder that was probed, the newest measurement of it.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import msgspec

from fuelline.schema.diagnosis.ceilings import Probe
from fuelline.schema.errors import RefusedError
from fuelline.schema.files import (
    is_own_file,
    list_below,
    make_folder,
    open_below,
    read_below,
    write_whole,
)
from fuelline.schema.foreign import decode_json, encode_json
from fuelline.store.home import home_folder

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 1 << 20
"""Of one of them; they have a few kilobytes."""
MOST_FILES = 100
"""Folders on a machine that are worth looking through."""


def keep_probe(probe: Probe) -> None:
    """Keep it in the place of an earlier one of the same folder; OSError, RefusedError if not."""
    folder = home_folder() / "probes"
    make_folder(folder, is_new=False)
    name = hashlib.sha256(f"{probe.host}\n{probe.path}".encode()).hexdigest()[:16]
    with write_whole(folder / f"{name}.json") as file:
        file.write(encode_json(probe).encode())


def find_probe(host: str, path: str | None) -> Probe | None:
    """The newest one of this host: of a folder above the path.

    If no path is known, of any folder, without what it says of the storage there.
    """
    found = [
        (when_ns, probe)
        for when_ns, probe in _load_probes()
        if probe.host == host and (path is None or _is_above(probe.path, path))
    ]
    newest = max(found, key=lambda pair: pair[0], default=(0, None))[1]
    if newest is None or path is not None:
        return newest
    return msgspec.structs.replace(newest, storage=None)


def _is_above(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _load_probes() -> list[tuple[int, Probe]]:
    """With the time that each was written; another user's, or one that cannot be read, is none."""
    try:
        folder = home_folder() / "probes"
        names = [name for name in list_below(folder) if name.endswith(".json")][:MOST_FILES]
    except (OSError, RefusedError):
        return []
    loaded = (_load(folder, name) for name in names)
    return [each for each in loaded if each is not None]


def _load(folder: Path, name: str) -> tuple[int, Probe] | None:
    try:
        descriptor = open_below(folder, name)
        try:
            is_ours, when_ns = is_own_file(descriptor), os.fstat(descriptor).st_mtime_ns
        finally:
            os.close(descriptor)
        return (
            (when_ns, decode_json(read_below(folder, name, MOST_BYTES), Probe)) if is_ours else None
        )
    except (OSError, msgspec.MsgspecError):
        return None
