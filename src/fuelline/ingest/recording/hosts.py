"""A run over several hosts: a folder with one recording a host, each written by that host alone.

A part that cannot be read is a Blindspot; the others are still read.
"""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING

from fuelline.ingest.recording.folder import read_recording
from fuelline.ingest.recording.run_excerpts import choose_share, take_share
from fuelline.schema.errors import InputError
from fuelline.schema.files import list_below
from fuelline.schema.run.recording import PART_PREFIX, Blindspot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fuelline.timeline import Timeline

_PART = re.compile(rf"{PART_PREFIX}(\d+)")


def find_parts(run_dir: Path) -> list[Path]:
    """The hosts' parts of a run, by number; none if the folder is a recording itself."""
    try:
        names = list_below(run_dir)
    except OSError:  # no folder, or not ours to enter: whoever reads it says so
        return []
    parts = [run_dir / name for name in names if _PART.fullmatch(name)]
    return [part for part in parts if _is_folder(part)]


def _is_folder(path: Path) -> bool:
    """Whether it is a folder itself; a link to one is none of this run's."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


class Hosts:
    """The recordings of a run's hosts, the lowest number first, each read when it is asked for.

    The last one stays in memory; a run on one host is read once. Of very many ranks the same
    excerpts of all are read.
    """

    def __init__(self, run_dir: Path) -> None:
        self._parts = find_parts(run_dir) or [run_dir]
        self._share = choose_share(self._parts)
        self._kept: tuple[Path, Timeline] | None = None
        self.lost: list[Blindspot] = []
        """Parts that could not be read, once all of them were tried."""

    def __iter__(self) -> Iterator[Timeline]:
        """Each that can be read; the others are lost, and if all are, that is an error."""
        found: list[Path] = []
        for part in self._parts:
            timeline = self._try(part)
            if not isinstance(timeline, InputError):
                found.append(part)
                yield timeline
            elif part == self._parts[-1] and not found:
                raise timeline
            else:
                self.lost.append(_lost(part, timeline))
        self._parts = found

    def read(self, number: int) -> Timeline:
        """One of those that could be read, by its place among them."""
        part = self._parts[number]
        if self._kept is None or self._kept[0] != part:
            self._kept = part, self._read(part)
        return self._kept[1]

    def _read(self, part: Path) -> Timeline:
        self._kept = None  # two at a time would be one too many
        timeline = read_recording(part)
        return timeline if self._share is None else take_share(timeline, self._share)

    def _try(self, part: Path) -> Timeline | InputError:
        try:
            self._kept = part, self._read(part)
        except InputError as error:
            return error
        return self._kept[1]


def _lost(part: Path, error: InputError) -> Blindspot:
    return Blindspot(
        what=f"the part {part.name} of this run", why=str(error), forbids="anything about its ranks"
    )
