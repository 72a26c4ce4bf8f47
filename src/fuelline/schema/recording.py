"""What a recording says about itself: run, processes, loaders, what could not be seen."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from fuelline.schema.samples import (  # noqa: TC001 - msgspec resolves them at run time
    DeviceSeen,
    Limits,
)
from fuelline.schema.trace import TraceFacts  # noqa: TC001

FORMAT = "fuelline-recording"
RECORDING_VERSION = 1
RUN_FILE = "run.json"
"""Written by the launcher before the job starts and again when it has ended."""
MANIFEST_FILE = "manifest.json"
"""Written last by compaction: where it is, the tables are whole."""
PART_PREFIX = "node-"
"""A run over several hosts has one recording a host, in folders named after their numbers."""
SPOOL_DIR = "spool"
MOST_FACTS_BYTES = 64 * 1024 * 1024
"""Of run.json or manifest.json; that of a thousand ranks has two."""


Number = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A whole number as a computer has them; Python would take one of a million digits."""
Moment = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
"""Nanoseconds whose differences fit in 64 bits; beyond 146 years from zero is damage."""


class Blindspot(Struct, frozen=True, kw_only=True):
    """Something that could not be seen, and which conclusions that forbids."""

    what: str
    why: str
    forbids: str


class RunFacts(Struct, frozen=True, kw_only=True):
    """One run of `fuelline run`."""

    format: str = FORMAT
    version: Number = RECORDING_VERSION
    run_id: str
    command: list[str]
    """As started; values of options that look like secrets are replaced."""
    host: str
    started_wall_ns: Moment
    """CLOCK_REALTIME, for people."""
    started_ns: Moment
    """CLOCK_MONOTONIC, the recording's clock."""
    ended_ns: Moment | None = None
    """None while the job runs, and for ever if the launcher was killed."""
    exit_code: Number | None = None
    """Of the job; negative is the signal that ended it."""
    fuelline_version: str = ""
    python_version: str = ""
    kernel: str = ""
    blindspots: list[Blindspot] = field(default_factory=list)
    launcher_pid: Number | None = None
    """Of `fuelline run` on its host; while it lives the run goes on."""


class LoaderFacts(Struct, frozen=True, kw_only=True):
    """Settings of one loader of one process, as the hooks saw them; None is unknown."""

    pid: Number = 0
    loader_id: Number = 0
    loader: str | None = None
    """Class of the loader; likewise below."""
    dataset: str | None = None
    sampler: str | None = None
    num_workers: Number | None = None
    batch_size: Number | None = None
    prefetch_factor: Number | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    context: str | None = None
    drop_last: bool | None = None
    in_order: bool | None = None
    dataset_length: Number | None = None
    style: str | None = None
    """`map` or `iterable`."""
    collate: str | None = None
    """The job's own collate function; None for the framework's."""


class ProcessFacts(Struct, frozen=True, kw_only=True):
    """One process that wrote a spool."""

    pid: Number
    ppid: Number
    created_ns: Moment
    records: Number
    dropped: Number
    faults: Number
    framework: str = ""
    version: str = ""
    threads: Number | None = None
    rank: Number | None = None
    """Of a distributed job; None if the process never took part in a collective."""
    ranks: Number | None = None


class TableFacts(Struct, frozen=True, kw_only=True):
    """One Parquet file of a recording, so that damage is noticed before it is believed."""

    rows: Number
    size_bytes: Number
    crc32: Number


class Manifest(Struct, frozen=True, kw_only=True):
    """The table of contents of a compacted recording."""

    format: str = FORMAT
    version: Number = RECORDING_VERSION
    run: RunFacts
    loaders: list[LoaderFacts] = field(default_factory=list)
    processes: list[ProcessFacts] = field(default_factory=list)
    blindspots: list[Blindspot] = field(default_factory=list)
    limits: list[Limits] = field(default_factory=list)
    source_lines: dict[str, str] = field(default_factory=dict)
    """`file:line` to the text of that line, for the lines that stack samples hit most."""
    tables: dict[str, TableFacts] = field(default_factory=dict)
    devices: list[DeviceSeen] = field(default_factory=list)
    """The accelerators of the host, one row a device."""
    kind: Literal["recorded", "trace"] = "recorded"
    """recorded: by `fuelline run`. trace: imported from a profiler's file, see `trace`."""
    trace: TraceFacts | None = None
