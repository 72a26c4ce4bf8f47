"""What the elastic loader wrote while the job ran: JSON lines, the last of which may be torn."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from fuelline.schema.diagnosis.fixes import FIX_DIR, FixEvent
from fuelline.schema.files import list_below, read_below
from fuelline.schema.foreign import decode_json

if TYPE_CHECKING:
    from pathlib import Path


def read_fixes(run_dir: Path) -> list[FixEvent]:
    """Events of all processes, each process's in their order; none for a run without --fix."""
    try:
        names = list_below(run_dir, FIX_DIR)
    except OSError:
        return []
    events = []
    for name in names:
        found = _NAME.fullmatch(name)
        for line in _read(run_dir, name).splitlines() if found else ():
            try:
                event = decode_json(line, FixEvent)
            except msgspec.DecodeError:
                continue  # cut off when the disk was full
            events.append(msgspec.structs.replace(event, pid=int(found[1]) if found else 0))
    return events


_NAME = re.compile(r"(\d{1,10})\.jsonl")
_MOST_BYTES = 64 * 1024 * 1024
"""A change takes a second and 500 bytes: more than a day of them."""


def _read(run_dir: Path, name: str) -> bytes:
    try:
        return read_below(run_dir, f"{FIX_DIR}/{name}", _MOST_BYTES)
    except OSError:
        return b""
