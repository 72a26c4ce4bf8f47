"""A noisy neighbour: another process that reads from the same disk, within the same rate limit."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.zoo.faults import processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.zoo.fault import Planted
    from bench.zoo.faults.groups import ReadRate


@dataclass(frozen=True)
class Neighbour:
    """So many reads in flight, all the time, under a limit that the job alone does not reach."""

    limit: ReadRate
    in_flight: int
    file: Path
    request_bytes: int = 4096

    def missing(self) -> str | None:
        """What the shared limit needs."""
        return self.limit.missing()

    @contextlib.contextmanager
    def plant(self, data: Path) -> Iterator[Planted]:
        """The limit around both, and the neighbour in it."""
        with self.limit.plant(data) as planted:
            reader = [str(self.file), str(self.in_flight), str(self.request_bytes)]
            command = ["-m", "bench.zoo.faults.reader", *reader]
            with processes.python(command, groups=planted.groups):
                yield planted
