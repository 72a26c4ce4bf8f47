"""What a diagnosis may know: every signal that a rule reads, by name. Timeline in, Facts out.

Rules see nothing else, so a case file for a rule is a page of numbers. A signal that could not be
measured is Missing and keeps its rules silent.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from fuelline.schema.diagnosis.ceilings import Probe  # noqa: TC001 - msgspec resolves it at run time
from fuelline.schema.diagnosis.demands import DemandFacts
from fuelline.schema.diagnosis.devices import DeviceFacts, EnergyFacts
from fuelline.schema.diagnosis.findings import (  # noqa: TC001
    BudgetPart,
    DeviceBudget,
    JitterForecast,
    LateRank,
    StepStats,
    Window,
)
from fuelline.schema.diagnosis.stragglers import StragglerFacts  # noqa: TC001
from fuelline.schema.parts import IdleCause, Part, StepPart  # noqa: TC001 - msgspec resolves it at run time
from fuelline.schema.readings import Missing, Signal
from fuelline.schema.run.recording import LoaderFacts  # noqa: TC001
from fuelline.schema.run.trace import CopyFacts, HostFrame, Quality, Software

_NOT_MEASURED = Missing(reason="not measured")

Encoding = Literal["picture", "compressed", "json", "other"]
"""compressed: gzip and its like, around whatever they hold."""


class PlaceFacts(Struct, frozen=True, kw_only=True):
    """Where threads were blocked most."""

    path: str
    mount: str
    fstype: str
    device: str
    syscall: str
    share: float
    """Of all samples that were blocked on storage."""


class HotLine(Struct, frozen=True, kw_only=True):
    """A line of user code that stack samples hit."""

    line: str
    """`file:line`."""
    function: str
    source: str | None
    share: float
    """Of the samples of its kind: of a worker's fetches, or of the trainer's own loop."""
    samples: int
    own: bool
    """True if the sample was in this line itself, not in a library that it called."""
    stage: str
    """decode, transform or collate for a worker's line; read if it reads a file; service if it
    waits at a socket for something else; sleep; loop, sync."""
    encoding: Encoding | None = None
    """What a line of the stage decode takes apart; None of any other stage."""
    in_loop: bool = False
    """True if its function also calls the model or backward: the line may move, the function may
    not."""


class InputFacts(Struct, frozen=True, kw_only=True):
    """Waiting for input, and what those who prepare it did meanwhile.

    Shares marked "of fetching" are parts of the time of the threads that prepare batches (workers,
    or the trainer itself with 0 workers) while the trainer waited; idle threads are not counted.
    """

    exposed_share: Signal = _NOT_MEASURED
    """Of the window: the accelerator had nothing to do because a batch was not there. Waiting that
    an asynchronous device hides behind its queue is taken off."""
    wait_share: Signal = _NOT_MEASURED
    """Of the window: the trainer sat in next(). At least `exposed_share`."""
    cpu_share: Signal = _NOT_MEASURED
    """Of fetching: on a core. High means decoding and transforming, not storage."""
    core_wait_share: Signal = _NOT_MEASURED
    """Of fetching: ready to run, no core free. High means too few cores for what wants to run."""
    read_share: Signal = _NOT_MEASURED
    """Of fetching: blocked in read, in a page fault or on a socket. High means slow storage."""
    metadata_share: Signal = _NOT_MEASURED
    """Of fetching: blocked in open, stat and the like. High means many small files."""
    sleep_share: Signal = _NOT_MEASURED
    """Of fetching: in a deliberate sleep."""
    blocked_share: Signal = _NOT_MEASURED
    """Of fetching: blocked, but neither in reading nor at a lock: asleep, at a service's socket,
    waiting for another process. High: more fetches at once help, cores do not."""
    blocked_growth: Signal = _NOT_MEASURED
    """How a fetch's blocked time grows with fetches in progress: 0 not at all, so that more workers
    bring more; 1 in proportion, as where they are served one at a time."""
    lock_share: Signal = _NOT_MEASURED
    """Of fetching: waiting for a lock."""
    idle_share: Signal = _NOT_MEASURED
    """Of all worker time while the trainer waited: nothing to do. High: the hand-off is slow."""
    collate_share: Signal = _NOT_MEASURED
    """Of fetching: in collate."""
    pickle_share: Signal = _NOT_MEASURED
    """Time that workers serialised batches, over the time that the trainer waited."""
    unpickle_share: Signal = _NOT_MEASURED
    """Of the wait: the trainer's own CPU time in next(), with workers."""
    system_share: Signal = _NOT_MEASURED
    """Of the CPU time of fetching: spent in the kernel."""
    fetchers: Signal = _NOT_MEASURED
    """Fetches in progress, on average while the trainer waited."""
    fetch_seconds: Signal = _NOT_MEASURED
    """Mean duration of one fetch of one batch."""
    batch_bytes: Signal = _NOT_MEASURED
    pickled_bytes: Signal = _NOT_MEASURED
    """Of a batch, what goes through the pipe: objects, and handles of tensors."""
    """Mean size of a batch as the trainer gets it."""
    place: PlaceFacts | None = None
    file_lock_share: Signal = _NOT_MEASURED
    """Of fetching: in a queue at a lock of a file, within `lock_share`: workers take turns."""
    lock_place: PlaceFacts | None = None
    """The file whose lock is waited for most."""
    cpu_growth: Signal = _NOT_MEASURED
    """How CPU time per sample grows with the fetches that run at once: 0 not at all, so more
    workers bring more; 1 in proportion, so they do not. They share memory, caches or cores."""
    beside_growth: Signal = _NOT_MEASURED
    """The same against the busy cores of the host: those of others, too, that come and go."""
    moving_share: Signal = _NOT_MEASURED
    """Of the stack samples of fetching: in lines that only move bytes, be it within a cache."""
    write_share: Signal = _NOT_MEASURED
    """Of fetching: blocked in write, fsync and the like. High where results are what is slow."""
    is_estimated: bool = False
    """Looked at from outside: no single fetch was seen, so not whether one waits for another."""


class StorageFacts(Struct, frozen=True, kw_only=True):
    """What the storage did for the fetchers."""

    in_flight: Signal = _NOT_MEASURED
    """Threads blocked on storage at one time while the trainer waited."""
    request_seconds: Signal = _NOT_MEASURED
    """Blocked time per read call of a fetch."""
    read_bytes_per_s: Signal = _NOT_MEASURED
    """What the fetchers read, from cache or not."""
    disk_bytes_per_s: Signal = _NOT_MEASURED
    """What the job's processes had to get from a block device."""
    bytes_per_call: Signal = _NOT_MEASURED
    saturation: Signal = _NOT_MEASURED
    """How blocked time per byte grows with fetches in progress: 0 not at all, so more in flight
    bring more; 1 in proportion, so they do not."""
    limit_use: Signal = _NOT_MEASURED
    """Achieved rate over the job's own cgroup limit for that device; 1 is at the limit."""
    limit_text: str | None = None
    device_busy: Signal = _NOT_MEASURED
    """Share of time that the block device had work. One slow request at a time makes it 1, too."""
    device_queue: Signal = _NOT_MEASURED
    """Requests at the block device at a time, on average. Above 1 they wait for each other."""
    others_share: Signal = _NOT_MEASURED
    """Of the work of the device or mount: done for processes outside the job."""
    others_name: str | None = None
    refault_share: Signal = _NOT_MEASURED
    """Bytes read again after the kernel dropped them, over bytes read from the device."""
    memory_use: Signal = _NOT_MEASURED
    """Of the memory limit: in use. Near 1 the page cache is squeezed."""
    write_bytes_per_s: Signal = _NOT_MEASURED
    """What the job's processes wrote, to files or not."""
    write_limit_use: Signal = _NOT_MEASURED
    """As `limit_use`, of what the job may write."""


class CoreFacts(Struct, frozen=True, kw_only=True):
    """What cores the job may use and what it got."""

    allowed: Signal = _NOT_MEASURED
    """Cores that affinity and quota allow."""
    host: Signal = _NOT_MEASURED
    used: Signal = _NOT_MEASURED
    """Cores that the job kept busy."""
    idle: Signal = _NOT_MEASURED
    """Cores of the host that nobody used."""
    others: Signal = _NOT_MEASURED
    """Cores that processes outside the job kept busy."""
    throttled_share: Signal = _NOT_MEASURED
    """Of the scheduler's periods: the job was stopped because its CPU quota was used up."""
    ranks: int = 1
    """Training processes on this host: they share the cores, and mostly the storage."""


class ComputeFacts(Struct, frozen=True, kw_only=True):
    """The step without its input."""

    compute_share: Signal = _NOT_MEASURED
    """Of the window: forward, backward, optimizer, synchronisation."""
    graph_nodes: Signal = _NOT_MEASURED
    """Operators in one backward pass."""
    node_seconds: Signal = _NOT_MEASURED
    """Forward and backward time per operator, less waiting for a core. Microseconds: launching."""
    dispatch_share: Signal = _NOT_MEASURED
    """Of compute: optimizer and the framework's own cost per operator, whatever the batch."""
    fixed_share: Signal = _NOT_MEASURED
    """Of compute: what a batch of size 0 would still cost, from batches of different sizes."""
    host_cpu_share: Signal = _NOT_MEASURED
    """Of backward, less waiting for a core: the trainer computed. Near 1: the host is the limit."""
    batch_samples: Signal = _NOT_MEASURED
    core_wait_share: Signal = _NOT_MEASURED
    """Of the window: the trainer was ready to run and had no core."""
    passes_per_batch: Signal = _NOT_MEASURED
    """Backward passes for a batch of the loader. Many: the loop cuts it into pieces."""
    paced_share: Signal = _NOT_MEASURED
    """Of the window, by the device's clock: it waits for launches. An interval where it was only
    never behind the host, so that kernels are in it, too."""
    optimizer_kernel: str = ""
    """The function of torch that stack samples show in the optimizer's step, such as
    `_single_tensor_adam`; empty if none does."""
    crowded_share: Signal = _NOT_MEASURED
    """Of the window: the device waits for launches, and would not if the host always had a core.
    High: other processes or a quota hold the training up; its operators are not too small."""


class TransferFacts(Struct, frozen=True, kw_only=True):
    """Between host and device."""

    pageable_share: Signal = _NOT_MEASURED
    """Of the time in copies to the device: from memory that is not pinned. High: pin it."""
    blocking_share: Signal = _NOT_MEASURED
    """Of that time: in calls that wait for the copy's end. High: copy with non_blocking=True."""
    bytes_per_s: Signal = _NOT_MEASURED
    syncs_per_step: Signal = _NOT_MEASURED
    """Synchronisations and values read from the device. 1 or more: its queue runs dry each step."""
    device_idle_share: Signal = _NOT_MEASURED
    """Of the device's time, by its own clock: nothing was queued. What the host waits beyond that
    is hidden behind the device's queue. In recordings from before there were marks: between the end
    of a step and the next one's beginning."""


class Culprit(Struct, frozen=True, kw_only=True):
    """A rank that makes the others wait."""

    rank: int
    late_count: int
    """Steps in which it made the others wait longest."""
    of: int
    """Steps in which anyone waited."""
    caused_wait_seconds: float
    """What the other ranks waited for it, together."""
    share_of_waiting: Signal
    part: StepPart = "unexplained"
    """The part of its budget that is longer than the others'."""
    excess_seconds: float = 0.0
    """How much longer, over all collectives that it was late at."""
    own: Facts | None = None
    """The facts of that rank by itself."""


class ExchangeFacts(Struct, frozen=True, kw_only=True):
    """Collectives after the last rank has arrived."""

    share: Signal = _NOT_MEASURED
    """Of the window: ranks exchange data and compute nothing."""
    mean_seconds: Signal = _NOT_MEASURED
    mean_bytes: Signal = _NOT_MEASURED
    """Over the wire of each rank."""
    latency_seconds: Signal = _NOT_MEASURED
    """What an exchange of nothing takes."""
    bytes_per_s: Signal = _NOT_MEASURED
    """What each further byte runs at."""
    jitter_share: Signal = _NOT_MEASURED
    """Of the exchange time: above what the same exchange takes when it goes well."""
    retransmit_share: Signal = _NOT_MEASURED
    """Of the TCP segments that were sent: sent again. Healthy networks stay below 0.0001."""
    core_wait_share: Signal = _NOT_MEASURED
    """Of the window: the thread that waited most for a core did so, of any rank. The exchange was
    delayed by about as much at least."""
    core_waits_share: Signal = _NOT_MEASURED
    """The same, summed over the ranks of a host: data goes from rank to rank, so that waits at
    different times add up. The exchange was delayed by as much at most."""


class SyncFacts(Struct, frozen=True, kw_only=True):
    """Waiting between ranks."""

    ranks: int = 0
    """Ranks that were recorded; 0 or 1: nothing to compare."""
    wait_share: Signal = _NOT_MEASURED
    """Of the window, mean over ranks: this rank has arrived and another one has not."""
    straggler_share: Signal = _NOT_MEASURED
    """Of the window: all ranks but one had arrived; what a faster last rank would save."""
    wait_share_by_rank: dict[str, float] = field(default_factory=dict)
    culprits: list[Culprit] = field(default_factory=list)
    late: list[LateRank] = field(default_factory=list)
    """The culprits with their own causes, as the engine explains them."""
    exchange: ExchangeFacts = field(default_factory=ExchangeFacts)
    jitter: list[JitterForecast] = field(default_factory=list)


class TraceSignals(Struct, frozen=True, kw_only=True):
    """An imported trace as rules see it. Shares are of wall time, all devices together.

    What the trace's quality forbids is Missing, so that its rules stay silent.
    """

    devices: int = 0
    ranks: int = 0
    compute_share: Signal = _NOT_MEASURED
    """Some kernel computed."""
    transfer_share: Signal = _NOT_MEASURED
    """Ranks exchanged data and computed nothing; undivided communication is not in it."""
    waiting_share: Signal = _NOT_MEASURED
    """A collective was waiting for a rank that had not come. High: stragglers."""
    undivided_share: Signal = _NOT_MEASURED
    """Communication of one rank alone: transfer or waiting, the trace does not show which."""
    hidden_share: Signal = _NOT_MEASURED
    """Of all communication: under compute. Near 1 it costs nothing."""
    copies_share: Signal = _NOT_MEASURED
    data_wait_share: Signal = _NOT_MEASURED
    """Idle while the host was in its data loader."""
    launch_share: Signal = _NOT_MEASURED
    """Idle because the host had not launched anything yet, though it did nothing but launching."""
    allocator_share: Signal = _NOT_MEASURED
    """Idle while the host was allocating or freeing device memory."""
    between_steps_share: Signal = _NOT_MEASURED
    """Idle while the host was in Python, in gaps that a step ended in."""
    host_code_share: Signal = _NOT_MEASURED
    """In gaps so long that the host did something else than launching, as stacks or their length
    show; 0 if that is the smaller part of what launching seems to cost."""
    preparing_share: Signal = _NOT_MEASURED
    """The same in gaps that ended in a copy to the device, the next input."""
    preparing_under: IdleCause | None = None
    """What most of `preparing_share` lay under."""
    unseen_share: Signal = _NOT_MEASURED
    """Part of `host_code_share`: of which nothing was recorded, not even a stack."""
    longest_stretch: float = 0.0
    """Share of the window: the longest stretch of idle time that the host is to blame for; 0 where
    steps are marked, because it is then known to belong to a step."""
    startup_share: Signal = _NOT_MEASURED
    """Idle while the host did what is paid once: loading code, capturing graphs."""
    once_share: Signal = _NOT_MEASURED
    """Part of `startup_share`: stretches like no other, where no step is marked."""
    sync_share: Signal = _NOT_MEASURED
    """Idle while the host was in a call that waits for the device."""
    unknown_share: Signal = _NOT_MEASURED
    utilisation: Signal = _NOT_MEASURED
    """What nvidia-smi would report."""
    fill: Signal = _NOT_MEASURED
    """Multiprocessors with a block, over wall. Far below `utilisation`: kernels too small."""
    occupancy: Signal = _NOT_MEASURED
    tensor_share: Signal = _NOT_MEASURED
    kernel_seconds: Signal = _NOT_MEASURED
    """Median length of a kernel. A few microseconds: as short as its launch."""
    launches_per_s: Signal = _NOT_MEASURED
    launches: int = 0
    """Calls that put a kernel on a device, whether it was recorded or not."""
    loader: str = ""
    """The data loader's event that most idle time lay under."""
    loader_in_process: bool = False
    """The loader works in the trainer itself: no workers."""
    during: dict[IdleCause, str] = field(default_factory=dict)
    """Cause of idleness to the host event that most of it lay under."""
    frames: dict[IdleCause, HostFrame] = field(default_factory=dict)
    """Cause of idleness to where in Python the host was, if stacks were recorded."""
    largest: IdleCause | None = None
    """Of the causes in `launch_share` the costliest."""
    software: Software = field(default_factory=Software)
    copies: list[CopyFacts] = field(default_factory=list)
    """By direction and memory, the longest first."""
    kernels: int = 0
    """That were recorded: with few of them nothing is certain."""
    late: list[LateRank] = field(default_factory=list)
    waiting_share_by_rank: dict[str, float] = field(default_factory=dict)
    quality: list[Quality] = field(default_factory=list)
    doubt: str = ""
    """Why no verdict may be given at all; empty if one may."""


class Facts(Struct, frozen=True, kw_only=True):
    """Everything that rules may read."""

    window: Window
    steps: StepStats
    budget: list[BudgetPart]
    loader: LoaderFacts | None = None
    input: InputFacts = field(default_factory=InputFacts)
    storage: StorageFacts = field(default_factory=StorageFacts)
    cores: CoreFacts = field(default_factory=CoreFacts)
    compute: ComputeFacts = field(default_factory=ComputeFacts)
    fetch_lines: list[HotLine] = field(default_factory=list)
    """Hottest first."""
    loop_lines: list[HotLine] = field(default_factory=list)
    step_lines: list[HotLine] = field(default_factory=list)
    """Own code between a batch and its backward pass: `transform` before the model, else `loop`."""
    sync: SyncFacts = field(default_factory=SyncFacts)
    """How this rank and the others wait for each other."""
    hidden_frac: dict[StepPart, float] = field(default_factory=dict)
    """Part of the budget to how much of it an asynchronous device hides, 0 to 1."""
    devices: list[DeviceFacts] = field(default_factory=list)
    """The job's accelerators; empty if there are none or none could be asked."""
    unused_devices: list[str] = field(default_factory=list)
    """Accelerators of the host that no process of the job was on, if that could be seen."""
    transfer: TransferFacts = field(default_factory=TransferFacts)
    trace: TraceSignals | None = None
    """Of an imported trace; None for recorded runs."""
    stragglers: StragglerFacts | None = None
    """Of an imported trace that names stages and replicas; None for all others."""
    demands: DemandFacts = field(default_factory=DemandFacts)
    """What one batch asks of each resource; the pipeline model is fitted from these."""
    device_budget: DeviceBudget | None = None
    """Where the device's time went; None without its own clock."""
    energy: EnergyFacts = field(default_factory=EnergyFacts)
    probe: Probe | None = None
    """What `fuelline probe` measured on the same host, of a folder that the job reads; None if it
    was never asked there."""

    def share_of(self, part: Part) -> float:
        """Share of the window that went to one part of the budget."""
        return sum(entry.share for entry in self.budget if entry.part == part)

    def exposed_share_of(self, part: StepPart) -> float:
        """The same, less what an asynchronous device hides."""
        return self.share_of(part) * self.felt_frac(part)

    @property
    def begins_again(self) -> bool:
        """Whether an epoch begins in the window; if none does, "epoch start" is the only one's end.

        No setting of workers changes that.
        """
        return self.demands.pause_counts.get("epoch start", 1) > 0

    def felt_frac(self, part: StepPart) -> float:
        """How much of a part an asynchronous device does not hide, 0 to 1."""
        return 1 - self.hidden_frac.get(part, 0.0)
