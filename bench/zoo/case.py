"""A case of the zoo: a job, the fault around it, and what is then the truth."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from examples import make_data

from bench.zoo.fault import NOTHING, Fault
from bench.zoo.pace import core_time

if TYPE_CHECKING:
    from collections.abc import Mapping

JOBS = Path(__file__).with_name("jobs")
DATA = Path(__file__).parents[1] / "out" / "data"

Pair = tuple[str, str]
"""(stage, limit), the two coordinates of a verdict."""

HEALTHY: Pair = ("compute", "math")

COUNTS = {
    "files": 8000,
    "gzip": 20_000,
    "images": 1600,
    "lines": 20_000,
    "packed": 1600,
    "tars": 1600,
    "tokens": 60,
    "zstd": 60,
}
"""Items of each data set: enough that a throttled job does not meet a file twice in its time."""


@dataclass(frozen=True)
class Culprit:
    """The rank that the others wait for, and why it is late."""

    rank: int
    stage: str
    limit: str
    part: str
    """The part of its step that is longer."""

    def __str__(self) -> str:
        return f"rank {self.rank}, {self.part}: {self.stage} x {self.limit}"


@dataclass(frozen=True)
class Case:
    """One planted fault, or one healthy control."""

    name: str
    sentence: str
    """What is wrong, in plain words."""
    job: str
    """Script in `jobs/`, without its suffix."""
    args: str
    truth: tuple[Pair, ...]
    """Acceptable verdicts; more than one only where physics allows both, as `why_two` argues."""
    data: str = ""
    """Kind of data set, see `examples/make_data.py`; empty if the job needs none."""
    fault: Fault = NOTHING
    ambient: Fault = NOTHING
    """What stays when the fault is taken away, such as a disk of ordinary speed."""
    cold: bool = False
    """Whether the data must come from the disk: its pages are dropped before the job starts."""
    without: str = ""
    """Options that take the fault out of the job, where the fault is in its options."""
    why_two: str = ""
    ranks: int = 0
    """Processes that train together; 0: one process that knows of no others."""
    culprit: Culprit | None = None
    """For a straggler; a verdict without the right one is wrong."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Settings of the emulated device, where the fault is in them."""
    paced: bool = False
    """Whether work of the cores keeps the device waiting: then it is as fast as they are."""
    device: str = ""
    """`emu`: always on the device of bench/emu; else on the one that the zoo was asked for."""

    @property
    def healthy(self) -> bool:
        """Whether this is a control, where any alarm is a false one."""
        return self.truth == (HEALTHY,)

    @property
    def device_time(self) -> float:
        """Factor of the device's times; a control's device is never faster than it was set."""
        if not self.paced and not self.healthy:
            return 1.0
        return max(1.0, core_time()) if self.healthy else core_time()

    def missing(self) -> str | None:
        """What this machine lacks to plant the fault; None if nothing."""
        return self.fault.missing()

    def command(self, data: Path | None, *, faulty: bool = True) -> list[str]:
        """The script and its arguments, after the interpreter."""
        where = ["--data", str(data)] if data else []
        settings = [*self.args.split(), *([] if faulty else self.without.split())]
        return [str(JOBS / f"{self.job}.py"), *where, *settings]

    def prepare(self) -> Path | None:
        """The folder with this case's data: made if it is not there, out of the cache if cold."""
        if not self.data:
            return None
        folder = DATA / self.data
        make_data.make(self.data, folder, COUNTS[self.data])
        if self.cold:
            os.sync()  # pages not yet on disk cannot be dropped
            drop_pages(folder)
        else:
            load_pages(folder)
        return folder


def drop_pages(folder: Path) -> None:
    """Take a folder's files out of the page cache."""
    for path in _files(folder):
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def load_pages(folder: Path) -> None:
    """Bring a folder's files into the page cache."""
    for path in _files(folder):
        with path.open("rb") as file:
            while file.read(1 << 22):
                pass


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
