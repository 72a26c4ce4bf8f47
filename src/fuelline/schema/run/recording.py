"""What a recording says about itself: run, processes, loaders, what could not be seen."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from fuelline.schema.run.run_folder import MANIFEST_FILE as MANIFEST_FILE  # noqa: PLC0414 - passed on
from fuelline.schema.run.run_folder import PART_PREFIX as PART_PREFIX  # noqa: PLC0414 - passed on
from fuelline.schema.run.run_folder import RUN_FILE as RUN_FILE  # noqa: PLC0414 - passed on
from fuelline.schema.run.run_folder import SPOOL_DIR as SPOOL_DIR  # noqa: PLC0414 - passed on
from fuelline.schema.run.samples import DeviceSeen, Limits  # noqa: TC001
from fuelline.schema.run.trace import TraceFacts  # noqa: TC001

FORMAT = "fuelline-recording"
RECORDING_VERSION = 2
"""The newest that is read; 2 has `Excerpts`, which a reader that knows only 1 would misread."""
WHOLE_VERSION = 1
"""Of recordings that are kept whole, and of `run.json`."""
MOST_FACTS_BYTES = 64 * 1024 * 1024
"""Of run.json or manifest.json; that of a thousand ranks has two."""

Number = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A whole number as a computer has them; Python would take one of a million digits."""
Moment = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
"""Nanoseconds whose differences fit in 64 bits; beyond 146 years from zero is damage."""

Length = Annotated[int, Meta(ge=1, le=1 << 62)]
"""Nanoseconds that something lasts."""


PYTHON_SOURCE: Final = "python"
"""`LoaderFacts.framework` of a source that is the job's own: a generator, or a thread, a pool or a
process behind a queue."""
FED_BY_UNKNOWN: Final = (PYTHON_SOURCE, "grain")
"""Sources whose hooks do not say who prepares batches: that is seen from outside."""
DAMAGED: Final = "damaged"
"""A file of the recording holds more than could be read of it."""
STEP_HOOK: Final = "step-hook"
"""A hook that every step goes through failed: time between events cannot be told any more."""


class Blindspot(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that could not be seen, and which conclusions that forbids."""

    what: str
    why: str
    forbids: str
    code: str = ""
    """For programs: DAMAGED, STEP_HOOK, or empty; the others are for people."""


Tier = Literal["T0", "T1", "T2"]
"""What a job that was attached to showed: T0 thread states and counters, T1 stacks as well, T2
hooks that were put into it."""


class AttachFacts(Struct, frozen=True, kw_only=True):
    """How a job was looked at that ran already."""

    pid: Number
    """What was attached to."""
    tier: Tier
    since_wall_ns: Moment = 0
    """When the job had started, by the wall clock; 0 if that is not known."""


class RunFacts(Struct, frozen=True, kw_only=True):
    """One run of `fuelline run`, or a look at a job that ran already."""

    format: str = FORMAT
    version: Number = WHOLE_VERSION
    run_id: str
    command: list[str]
    """As started, without what looks like a secret; empty with `run --no-command`."""
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
    staged_in: str | None = None
    """A folder of that host where the recording is until its end, if this one is on a network's
    disk; None in a run that is whole."""
    attached: AttachFacts | None = None
    """None: recorded from its start by `fuelline run`."""

    @property
    def is_estimated(self) -> bool:
        """Whether steps and fetches are estimates from samples.

        Then their sums and shares are right, single ones are not.
        """
        return self.attached is not None and self.attached.tier != "T2"


class NodeFacts(Struct, frozen=True, kw_only=True):
    """One stage of a pipeline whose framework names its stages, such as a node of tf.data."""

    id: Number = 0
    """Its place: 0 is the end of the pipeline, from which batches are taken."""
    name: str = ""
    """Kind of the stage, such as ParallelMapV2."""
    inputs: list[Number] = field(default_factory=list)
    """Stages that it takes from."""
    ratio: float = 0.0
    """Elements that it takes for each that it gives: of a batch, its size; 0 is unknown."""
    tunable: bool = False
    """Whether the framework itself chooses how many calls run at once."""


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
    framework: str = ""
    """Whose source it is, where that changes what can be set: `tf.data`, `python` for the job's own
    code; empty for a DataLoader."""
    nodes: list[NodeFacts] = field(default_factory=list)
    """Its stages, where the framework tells."""
    threads: Number | None = None
    """Threads that read ahead in each process, where that is a setting."""


_WAITING = frozenset(("gloo", "mpi"))
"""Backends whose calls, or waits for them, return when the exchange is done. Those of accelerators
(nccl, xccl, hccl, ...) only put it into a stream."""


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
    backend: str = ""
    """What its ranks exchange data with, such as `nccl`; empty if it is not known."""
    step_frames: list[str] = field(default_factory=list)
    """The stack that ends in the loop's line of a step, as of `StackSample`; where hooks told."""
    begun: list[tuple[Moment, str]] = []
    """When Python was ready, and when the import of each package began, until training did."""

    @property
    def queues(self) -> bool:
        """Whether a collective's call and wait only put work into the device's queue.

        Then the host's times say nothing of who waits for whom.
        """
        return bool(self._backends - _WAITING)

    @property
    def may_wait(self) -> bool:
        """Whether it has another backend for what is in the host's memory, which does wait."""
        return bool(self._backends & _WAITING)

    @property
    def _backends(self) -> frozenset[str]:
        """Of `cpu:gloo,cuda:nccl`: gloo and nccl."""
        named = (each.rpartition(":")[2].strip().lower() for each in self.backend.split(","))
        return frozenset(name for name in named if name)


class TableFacts(Struct, frozen=True, kw_only=True):
    """One Parquet file of a recording, so that damage is noticed before it is believed."""

    rows: Number
    size_bytes: Number
    crc32: Number


class Excerpts(Struct, frozen=True, kw_only=True):
    """What is kept of a recording with more records than are judged: its excerpts, put end to end.

    Of each `period_ns` from `first_ns` on the first `kept_ns` are kept, and the clock of the tables
    runs only then. So times, shares and rates are those of the run, in proportion: a save of 20 s
    lasts 2.5 s where an eighth is kept. Counters of the observer grow all the time:
    `Timeline.kept_frac` of their growth goes with the time in the tables.
    """

    first_ns: Moment
    """On the recording's clock; begins a period on the wall clock, the same on all hosts."""
    period_ns: Length
    kept_ns: Length
    records: Number
    """How many there were, on this host or on all that are judged together."""

    @property
    def kept_frac(self) -> float:
        """Share of the time that is kept."""
        return self.kept_ns / self.period_ns

    def fold(self, at_ns: int) -> int:
        """A moment of the run on the clock of the tables: the next one that is kept."""
        if at_ns < self.first_ns:
            return at_ns
        periods, since_ns = divmod(at_ns - self.first_ns, self.period_ns)
        return self.first_ns + periods * self.kept_ns + min(since_ns, self.kept_ns)

    def unfold(self, at_ns: int) -> int:
        """A moment on the clock of the tables in the run."""
        if at_ns < self.first_ns:
            return at_ns
        periods, since_ns = divmod(at_ns - self.first_ns, self.kept_ns)
        return self.first_ns + periods * self.period_ns + since_ns


class Manifest(Struct, frozen=True, kw_only=True):
    """The table of contents of a compacted recording."""

    format: str = FORMAT
    version: Number = WHOLE_VERSION
    run: RunFacts
    loaders: list[LoaderFacts] = field(default_factory=list)
    processes: list[ProcessFacts] = field(default_factory=list)
    blindspots: list[Blindspot] = field(default_factory=list)
    limits: list[Limits] = field(default_factory=list)
    source_lines: dict[str, str] = field(default_factory=dict)
    """`file:line` to the text of that line, for the lines that stack samples hit most."""
    tables: dict[str, TableFacts] = field(default_factory=dict)
    devices: list[DeviceSeen] = field(default_factory=list)
    """The accelerators of the host, one row per device."""
    kind: Literal["recorded", "trace"] = "recorded"
    """recorded: by `fuelline run`. trace: imported from a profiler's file, see `trace`."""
    trace: TraceFacts | None = None
    excerpts: Excerpts | None = None
    """None: everything was kept."""
