"""What the elastic loader wrote while the job ran: JSON lines, the last of which may be torn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fuelline.schema.fixes import FIX_DIR, FixEvent

if TYPE_CHECKING:
    from pathlib import Path


def read_fixes(run_dir: Path) -> list[FixEvent]:
    """Events of all processes, each process's in their order; none for a run without --fix."""
    events = []
    for file in sorted((run_dir / FIX_DIR).glob("*.jsonl")):
        pid = int(file.stem) if file.stem.isdecimal() else 0
        for line in file.read_bytes().splitlines():
            try:
                event = msgspec.json.decode(line, type=FixEvent)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # cut off when the disk was full
            events.append(msgspec.structs.replace(event, pid=pid))
    return events
