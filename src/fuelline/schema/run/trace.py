"""What an imported trace is: where it came from, what chips it saw, what it may not be asked.

Any profiler's file becomes ranks with tables (`timeline/trace.py`) and these nouns; nothing after
`ingest` knows the format. Unknown is None, never zero. A ledger's shares sum to 1, and what a
trace does not carry is stated as Quality before any number is believed.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, get_args

from msgspec import Struct, field

from fuelline.schema.parts import LEDGER_PARTS, IdleCause, LedgerPart
from fuelline.schema.readings import Missing, Signal


class DeviceKind(IntEnum):
    """What a device event is. Importers give what the format says; names refine it later."""

    KERNEL = 1  # any kernel; its name and behaviour show whether it computes or communicates
    COPY = 2  # memcpy in any direction
    SET = 3  # memset
    COMPUTE = 4  # the format itself says that it computes
    COMMUNICATION = 5  # the format itself says that it communicates


class HostKind(IntEnum):
    """What a host event is."""

    OP = 1  # an operator of the framework
    RUNTIME = 2  # a call into the device's runtime or driver
    ANNOTATION = 3  # a range that the user or the framework named
    PYTHON = 4  # a Python function
    PROFILER = 5  # the profiler's own work: buffer flushes, instrumentation
    OTHER = 6


class CopyDirection(IntEnum):
    """Where a copy goes."""

    UNKNOWN = 0
    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3
    PEER = 4


Framework = Literal["torch", "torch_npu", "jax", "tensorflow", "vllm", "sglang", "xla", ""]
"""What a job is written in. torch_npu: torch on Ascend's chips. xla: compiled by XLA, from which of
its frameworks is not known."""


class Software(Struct, frozen=True, kw_only=True):
    """What a trace shows of the job's software, and which remedies it has already."""

    framework: Framework = ""
    is_tpu: bool = False
    is_compiled: bool = False
    """torch.compile made some of its kernels, or each jitted call of JAX runs several."""
    is_training: bool = False
    is_fused: bool = False
    """Its optimizer updates many parameters with one kernel."""
    has_graphs: bool = False
    """CUDA or HIP graphs launch some of its kernels."""
    is_rocm: bool = False
    builds_operators: bool = False
    """Ascend: operators are compiled when they are called."""


class CopyFacts(Struct, frozen=True, kw_only=True):
    """Copies of one sort, over all devices of a trace."""

    kind: DeviceKind
    direction: CopyDirection
    memory: str
    """Of the host: `pinned`, `pageable`, or empty if neither its name nor its speed tells."""
    count: int
    seconds: float
    size_bytes: int


TraceRung = Literal[
    "reported utilisation", "SM fill", "estimated occupancy", "tensor-core kernels", "MFU"
]
"""The utilisation ladder of an imported trace, each a share of the device's wall time."""
TRACE_RUNGS: tuple[TraceRung, ...] = get_args(TraceRung)

_UNKNOWN = Missing(reason="the trace does not say")


class Quality(Struct, frozen=True, kw_only=True):
    """Something wrong with a trace, and the conclusions that it forbids."""

    problem: str
    forbids: str
    ranks: list[int] = field(default_factory=list)
    """Ranks that it concerns; empty for all."""
    code: str = ""
    """One word for machines: `truncated`, `dropped`, `graphs`, `no-device`, `one-rank`, `no-steps`,
    `sampled`, ..."""


class ChipFacts(Struct, frozen=True, kw_only=True):
    """One accelerator as the trace describes it; None is what it does not say."""

    device: int
    """Its number within the rank's trace."""
    name: str = ""
    sm_count: int | None = None
    """Streaming multiprocessors, or compute units."""
    warp_size: int | None = None
    max_threads_per_sm: int | None = None
    registers_per_sm: int | None = None
    shared_bytes_per_sm: int | None = None
    memory_bytes: int | None = None
    peak_flops_per_s: float | None = None
    """If the trace itself states it; otherwise the catalogue is asked by name."""
    peak_bytes_per_s: float | None = None


class SourceFacts(Struct, frozen=True, kw_only=True):
    """One file that was imported."""

    file: str
    """Its name, without the folder."""
    format: str
    """`ascend`, `dcgm`, `kineto`, `nsys`, `rocpd`, `rocprof`, `straggler`, `xplane`."""
    size_bytes: int
    ranks: list[int] = field(default_factory=list)
    events: int = 0
    """Events that were read, those that no table keeps included."""


class RankFacts(Struct, frozen=True, kw_only=True):
    """One rank of an imported trace."""

    rank: int
    world_size: int | None = None
    host: str = ""
    pid: int | None = None
    chips: list[ChipFacts] = field(default_factory=list)
    origin_ns: int = 0
    """What was taken off all times of this rank; 0 if they are on the trace's own clock."""
    is_rank_known: bool = True
    """Whether the trace itself named the rank; otherwise it was counted from the file names."""
    settings: dict[str, str] = field(default_factory=dict)
    """What the profiler was asked for, as far as the file says: `record_shapes`, `with_stack`."""


class TraceFacts(Struct, frozen=True, kw_only=True):
    """The part of a manifest that an imported run has and a recorded one lacks."""

    sources: list[SourceFacts] = field(default_factory=list)
    ranks: list[RankFacts] = field(default_factory=list)
    quality: list[Quality] = field(default_factory=list)
    """What was wrong with the files; what the tables show is found when they are read."""


class DeviceLedger(Struct, frozen=True, kw_only=True):
    """Where one device's wall time went."""

    rank: int
    device: int
    start_ns: int
    wall_ns: int
    """From its first event to the end of its last."""
    parts_ns: dict[LedgerPart, int] = field(default_factory=dict)
    """Every one of LEDGER_PARTS; they sum to `wall_ns`."""
    hidden_communication_ns: int = 0
    """Communication while a kernel computed: it cost nothing."""
    communication_ns: int = 0
    """All of it, hidden and exposed."""
    busy_ns: int = 0
    """Some kernel, copy or set was there. What nvidia-smi reports counts kernels only: see the
    ladder's first rung."""

    def shares(self) -> dict[LedgerPart, float]:
        """Part to share of wall."""
        return {part: spent / self.wall_ns for part, spent in self.parts_ns.items()}

    def check(self) -> None:
        """Raise if the parts are not the whole."""
        if sum(self.parts_ns.values()) != self.wall_ns:
            raise ValueError(f"rank {self.rank}: parts sum to {sum(self.parts_ns.values())} ns")
        if set(self.parts_ns) != set(LEDGER_PARTS):
            raise ValueError(f"rank {self.rank}: parts are {sorted(self.parts_ns)}")
        if min(self.parts_ns.values()) < 0:
            raise ValueError(f"rank {self.rank}: a part is negative")


class HostFrame(Struct, frozen=True, kw_only=True):
    """Where in Python the host was, as recorded stacks show it."""

    function: str
    file: str
    line: int
    share: float
    """Of the idle time with this cause, within this function."""
    moments: int = 0
    """At which stacks were looked at."""
    caller: str = ""
    """`resize (image_processing_owlv2.py:301)`: who called it from another file."""
    within: str = ""
    """The innermost function that nearly all of the idle time lies in, if it is another one."""
    user: str = ""
    """The innermost function of the user's own, if it is none of them."""


class GapCause(Struct, frozen=True, kw_only=True):
    """Idle time of a device with one cause, from what the host did meanwhile."""

    rank: int
    device: int
    cause: IdleCause
    part: LedgerPart
    """The ledger part that it belongs to."""
    seconds: float
    share: float
    """Of the device's wall time."""
    gaps: int
    """Idle gaps in which it occurred."""
    longest_seconds: float = 0.0
    during: str = ""
    """The host event that most of it lay under."""
    frame: HostFrame | None = None
    """Where in Python that was, if stacks were recorded."""


class KernelFacts(Struct, frozen=True, kw_only=True):
    """A kernel, or a class of them, over all devices of a trace."""

    name: str
    kind: str
    """Its class: gemm, attention, norm, elementwise, copy, communication, optimizer, ..."""
    count: int
    seconds: float
    share: float
    """Of all kernel time."""
    mean_seconds: float = 0.0
    p50_seconds: float = 0.0
    p95_seconds: float = 0.0
    spread: float | None = None
    """Standard deviation over mean; None for a single one. High: the same work at uneven speed."""
    graph_count: int = 0
    """How many of them were launched by a graph."""
    flops_per_s: Signal = _UNKNOWN
    bound: str | None = None
    """`memory` or `compute` by the roofline, where shapes and the chip allow."""
    tensor_core: bool = False
    hidden: float | None = None
    """Of a class that communicates or copies: the share of its time during which something else
    computed, which cost nothing. 1 - `hidden` of it was exposed."""


class RankClock(Struct, frozen=True, kw_only=True):
    """How a rank's clock was shifted to agree with the first rank's at collectives."""

    rank: int
    shift_ns: int
    error_ns: int | None
    """How far off that may be; None if nothing bounds it."""


class BlameLink(Struct, frozen=True, kw_only=True):
    """Victims' waiting for one rank, and what that rank did meanwhile."""

    rank: int
    """The last to arrive."""
    doing: str
    """In plain words: `kernel launches`, `data loader`, `compute kernels`, ..."""
    during: str = ""
    """The host event or kernel that most of it lay under."""
    caused_wait_seconds: float = 0.0
    collectives: int = 0


class TraceAnswer(Struct, frozen=True, kw_only=True):
    """What a diagnosis says about an imported trace beyond what recorded runs have."""

    formats: list[str] = field(default_factory=list)
    ledgers: list[DeviceLedger] = field(default_factory=list)
    gaps: list[GapCause] = field(default_factory=list)
    """Largest first."""
    kernels: list[KernelFacts] = field(default_factory=list)
    """Top by time."""
    kernel_classes: list[KernelFacts] = field(default_factory=list)
    steps_from: str = ""
    """`profiler`, `annotation`, `periodicity`, or empty if no steps were found."""
    step_name: str = ""
    clocks: list[RankClock] = field(default_factory=list)
    blame: list[BlameLink] = field(default_factory=list)
    communication: list[str] = field(default_factory=list)
    """Libraries that were recognised: `NCCL`, `RCCL`, `DeepEP`, ..., `by behaviour`."""
