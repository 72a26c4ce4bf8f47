"""What one batch asks of each resource: the service demands that the pipeline model is fitted from.

All times are seconds of one batch unless a field says otherwise. A demand that was not measured is
Missing and keeps the model from answering questions that need it.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from fuelline.schema.parts import StepPart  # noqa: TC001 - msgspec resolves it at run time
from fuelline.schema.readings import Missing, Signal

_NOT_MEASURED = Missing(reason="not measured")

DeviceMode = Literal["beside", "within", "unknown"]
"""beside: the device works while the host goes on. within: the host itself computes, or waits for
the device in every step, so that device time is part of the trainer's own time."""


class DemandFacts(Struct, frozen=True, kw_only=True):
    """Demands of one batch, means over the window."""

    batch_seconds: Signal = _NOT_MEASURED
    """From one batch to the next: what every prediction is compared with."""
    fetch_cpu_seconds: Signal = _NOT_MEASURED
    """On a core, in the thread that fetches. High: decoding and transforming."""
    fetch_queued_seconds: Signal = _NOT_MEASURED
    """Ready to run, no core free. High: others, a quota or too many workers."""
    fetch_blocked_seconds: Signal = _NOT_MEASURED
    """Neither: storage, locks, sleeping."""
    read_frac: Signal = _NOT_MEASURED
    """Of the blocked time: in reads, page faults and on sockets."""
    metadata_frac: Signal = _NOT_MEASURED
    """Of the blocked time: in open, stat and the like."""
    sleep_frac: Signal = _NOT_MEASURED
    """Of the blocked time: asleep, which no number of others makes longer."""
    process_frac: Signal = _NOT_MEASURED
    """Of the blocked time: waiting for another process, which may need a core."""
    fetch_spread: Signal = _NOT_MEASURED
    """Standard deviation over mean of a fetch. High: the queue runs dry now and then."""
    read_calls: Signal = _NOT_MEASURED
    """Read calls and major faults of one fetch."""
    read_bytes: Signal = _NOT_MEASURED
    """What one fetch reads, from cache or not."""
    handoff_seconds: Signal = _NOT_MEASURED
    """A worker serialises the batch."""
    take_seconds: Signal = _NOT_MEASURED
    """The trainer's own CPU time in next() with workers: unpickling."""
    busy_frac: Signal = _NOT_MEASURED
    """Of the workers' time: in a fetch or serialising. Near 1: they are the limit."""
    host_seconds: Signal = _NOT_MEASURED
    """The trainer's own time outside next(), pauses and waiting for the device: launching."""
    host_cpu_frac: Signal = _NOT_MEASURED
    """Of the trainer's time on a core or waiting for one: on a core."""
    loop_seconds: Signal = _NOT_MEASURED
    """Of it: the loop's own code between steps, waiting for the device taken off."""
    host_spread: Signal = _NOT_MEASURED
    """Standard deviation over mean of the trainer's time from batch to batch, pauses left out."""
    device_seconds: Signal = _NOT_MEASURED
    """The device works on one batch."""
    device_mode: DeviceMode = "unknown"
    is_device_counted: bool = False
    """`device_seconds` is from utilisation counters, which count a kernel that waits, too."""
    sync_frac: Signal = _NOT_MEASURED
    """Of the batches: the host waited for the device after it, as loss.item() does."""
    pause_seconds: dict[StepPart, float] = field(default_factory=dict)
    """Checkpoint, validation, garbage collection and epoch start, in seconds a batch."""
    pause_counts: dict[StepPart, int] = field(default_factory=dict)
    """How many of each there were in the window."""
    batches: int = 0
    """Training batches in the window."""
    job_batches: int | None = None
    """Of the whole job, where the recording ends with it: what is done once counts for all."""
    start_seconds: Signal = _NOT_MEASURED
    """To start one worker, where the loader was built inside the run."""
    runnable: Signal = _NOT_MEASURED
    """Threads of the job that run or want to, on average."""
    worker_bytes: Signal = _NOT_MEASURED
    """Resident memory of one worker; pages that it shares with others count, too."""
    free_bytes: Signal = _NOT_MEASURED
    """Memory that the job can still get: of its limit, or of the host."""
    copy_bytes: Signal = _NOT_MEASURED
    """Copied to the device for one batch."""
    copy_seconds: Signal = _NOT_MEASURED
    """The trainer's time in those copies and in pinning."""
