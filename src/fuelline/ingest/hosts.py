"""A run over several hosts: a folder with one recording a host, each written by that host alone.

A part that cannot be read is a Blindspot; the others are read all the same.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from fuelline.ingest.recording import read_recording
from fuelline.schema.errors import InputError
from fuelline.schema.recording import PART_PREFIX, Blindspot
from fuelline.timeline.merge import keep_apart

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.timeline import Timeline

_PART = re.compile(rf"{PART_PREFIX}(\d+)")


def find_parts(run_dir: Path) -> list[Path]:
    """The hosts' parts of a run, by number; none if the folder is a recording itself."""
    found = run_dir.glob(f"{PART_PREFIX}*") if run_dir.is_dir() else ()
    return sorted(path for path in found if _PART.fullmatch(path.name))


def read_hosts(run_dir: Path) -> list[Timeline]:
    """One Timeline a host, the lowest number first, pids kept apart, clocks as they were."""
    parts = find_parts(run_dir)
    if not parts:
        return [read_recording(run_dir)]
    read = [(part, _try(part, number)) for number, part in enumerate(parts)]
    found = [timeline for _, timeline in read if not isinstance(timeline, InputError)]
    lost = [(part, error) for part, error in read if isinstance(error, InputError)]
    if not found:
        raise lost[0][1]
    spots = (*found[0].blindspots, *(_lost(part, error) for part, error in lost))
    return [dataclasses.replace(found[0], blindspots=spots), *found[1:]]


def _try(part: Path, number: int) -> Timeline | InputError:
    try:
        return keep_apart(read_recording(part), number)
    except InputError as error:
        return error


def _lost(part: Path, error: InputError) -> Blindspot:
    return Blindspot(
        what=f"the part {part.name} of this run", why=str(error), forbids="anything about its ranks"
    )
