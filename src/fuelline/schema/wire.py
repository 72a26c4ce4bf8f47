"""The spool's binary layout: what hooks write inside the job and `ingest` reads afterwards.

Standard library only: this file is imported by the user's training process.

A spool is one file per process: a header page, then records of 64 bytes, a few or many at a time.
Versions before 2 claimed space ahead, so theirs end with zeros: a record of kind 0 is none. All
times are CLOCK_MONOTONIC nanoseconds.

What changes several times a step is not in the file: the trainer's phase is in a page of memory
that nobody can shorten (a sealed memfd; a mapped file that is cut short kills who writes to it),
open in the trainer under the number that the header names, for the observer to look at.
"""

from __future__ import annotations

import os
import struct
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuelline.schema.parts import StepPart

MAGIC = b"FUELSPL1"
VERSION = 2
SUFFIX = ".spool"

HEADER_BYTES = 4096
HEADER = struct.Struct("<8sIIIIQQ")
"""magic, version, pid, parent pid, python version (hex), monotonic ns, realtime ns at creation."""

WORD = struct.Struct("<Q")
PHASE_OFFSET = 64
"""The `Phase` that the trainer thread is in right now: in the live page, and 0 in the file."""
NOTES_OFFSET = 72
"""Where the words of the header begin that change now and then, in this order."""
NOTES = struct.Struct("<6Q")
"""Native id of the trainer thread; 0 before there is one.
Records that could not be kept (cap reached, disk full).
Exceptions that a hook's guard caught; each is a BLINDSPOT while there is room.
The trainer's descriptor of the live page, plus one; 0: there is no such page.
errno for which nothing more is kept (EFBIG: a cap, ENOSPC: disk full), else 0.
Where the file ended when this was written; a shorter one was cut. 0 before version 2."""

LIVE_NAME = "fuelline-phase"
LIVE_BYTES = 4096


def open_live(pid: int, number: int) -> int:
    """A descriptor of a trainer's live page; OSError if it is not to be had.

    The number may be another file's by now: the job may have closed all its descriptors.
    """
    path = f"/proc/{pid}/fd/{number}"
    if not is_live(pid, number):
        raise FileNotFoundError(2, "it is another file by now", path)
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def is_live(pid: int, number: int) -> bool:
    """Whether this descriptor of a process is a live page; OSError if there is none."""
    link = os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115 - no pathlib in guests
    return link.startswith(f"/memfd:{LIVE_NAME}")


RECORD = struct.Struct("<QQqqqqqIHH")
"""start_ns, dur_ns, a, b, c, d, e, tid, flags, kind."""
RECORD_BYTES = RECORD.size


def tail(kind: int, flags: int = 0) -> int:
    """The last three fields of a record as one 64-bit integer, without the thread."""
    return kind << 48 | flags << 32


TEXT_RECORD = struct.Struct("<QQ40sIHH")
"""The same 64 bytes for TEXT: text id, total bytes, 40 bytes of UTF-8, tid, chunk number, kind."""
TEXT_CHUNK = 40

CAP_BYTES = 256 * 1024 * 1024
"""Most spool per process, about 4 million records; then records are counted, not kept."""

RUN_DIR_VARIABLE = "FUELLINE_RUN_DIR"
"""Environment variable that tells the hooks where the run is; they write to its `spool/` folder."""
ZOOM_VARIABLE = "FUELLINE_ZOOM"
"""Environment variable with the steps to profile, as `3@100`; absent if none were asked for."""
BOOT_ID_VARIABLE = "FUELLINE_BOOT_ID"
"""Environment variable with the boot of the launcher's host: only there the clock is the same."""
OBSERVER_PID_VARIABLE = "FUELLINE_OBSERVER_PID"
"""Environment variable with the observer's pid, which Yama must be told about (ptrace_scope 1)."""


class Kind(IntEnum):
    """What happened, whichever framework it was; the comment names the five integers a..e.

    An integer that is not named is 0, a number that is not known -1. (*) is measured at some calls
    of its hook, ever fewer, and -1 at the others: it would cost the training as much as all the
    rest of a record. A fetch in the trainer (worker id -1) has its cpu and run-queue ns and its
    FETCH_IO at some calls, too.

    A source hands batches to the loop: a data loader, an iterator over a pipeline, a generator. Its
    workers are the processes that prepare them.
    """

    WAIT = 1  # source id, samples, bytes*, thread cpu ns*, position in this epoch (0 = first batch)
    SOURCE_START = 2  # source id: it is made ready for an epoch (its workers start)
    FETCH = 3  # worker id (-1: in the trainer), samples, thread cpu ns, run-queue ns, collate ns
    WORKER = 4  # source id, worker id, worker pid: written by the trainer, however it starts them
    FETCH_IO = 5  # rchar bytes, bytes from the block layer, read calls, major faults, system cpu ns
    HANDOFF = 6  # serialised bytes, thread cpu ns, worker id, bytes of the batch: by a worker
    PIN = 7  # bytes
    COPY = 8  # bytes, device index
    BACKWARD = 9  # nodes of the graph (0: not counted this time), thread cpu ns*, cpu ns* of the
    # device's thread that runs it
    STEP = 10  # stepper id, such as an optimizer's, `StepKind`, thread cpu clock ns*: a step's end
    PAUSE = 11  # bytes on disk (-1 unknown), text id of the target, `PauseKind`
    SYNC = 12  # device index (-1: the current one)
    GC = 13  # generation, objects collected
    TEXT = 14  # see TEXT_RECORD
    SOURCE = 15  # source id, text id of its settings as JSON
    BLINDSPOT = 16  # text id of {"what", "why", "forbids"} as JSON
    PROCESS = 17  # text id of {"framework", "version", "threads", "devices", ...} as JSON
    RANK = 18  # rank, ranks in the job, local rank (-1 unknown), text id of the backend's name
    COLLECTIVE = (
        19  # `Collective`, bytes, group, number (-1: not to be matched), ranks in the group
    )
    COLLECTIVE_WAIT = 20  # the same, when an asynchronous one is waited for
    ZOOM = 21  # text id of the trace's file name: a profile of some steps is written
    FLOPS = 22  # floating-point operations of the step that ends here
    DEVICE_STEP = 23  # as 24, before there were marks: device index, ns from its first to its last
    # kernel, ns idle before the first
    MARK = 24  # device index, ns of its clock, number of that clock, stream, `MarkPlace`: an event
    # that the host queued at `start_ns`; after `dur_ns` it knew that the device had passed it
    CREW = (
        25  # source id, native id, on a core ns, queued ns: a thread of this process that prepares
    )
    # batches for it; its clocks, once it has worked
    NODE = 26  # source id, iterator << 32 | number << 8 | place in the pipeline (0: its end), busy
    # ns, elements, elements held: a stage so far, as its framework counts; flags: calls at a time


class StepKind(IntEnum):
    """Which unit of useful work a step is."""

    TRAIN = 0
    REPLAY = 1  # a captured graph was replayed: a step where it holds all of one


class MarkPlace(IntEnum):
    """Where in the host's work a MARK was put.

    The beginning of a stall has none of its own if another mark was put just before.
    """

    WAIT_BEGIN = 1  # before a batch is asked for
    WAIT_END = 2
    COPY_BEGIN = 3  # before a copy to the device
    COPY_END = 4
    SYNC_BEGIN = 5  # before the host waits for the device
    BACKWARD_BEGIN = 7
    BACKWARD_END = 8
    STEP_END = 9  # after an optimizer
    PAUSE_BEGIN = 10
    PAUSE_END = 11
    COLLECTIVE_BEGIN = 12  # where this rank's device comes to a collective
    COLLECTIVE_END = 13  # where its device goes on after one
    COLLECTIVE_WAIT = 14  # before an asynchronous one is waited for
    BESIDE_BEGIN = 15  # of a copy on another stream than the training's, on that
    BESIDE_END = 16


class PauseKind(IntEnum):
    """What the loop stands still for."""

    CHECKPOINT = 0
    VALIDATION = (
        1  # a framework's own call; a loop that evaluates batch by batch shows by its WAITs
    )
    COMPILE = 2


PART_OF_PAUSE: dict[PauseKind, StepPart] = {
    PauseKind.CHECKPOINT: "checkpoint",
    PauseKind.VALIDATION: "validation",
    PauseKind.COMPILE: "compile",
}
"""Where the time of a pause goes. What a newer hook writes and is not known here is no checkpoint:
it stays unexplained."""


class Collective(IntEnum):
    """What ranks do together. `start_ns` of its record is the arrival of this rank."""

    ALL_REDUCE = 1
    BROADCAST = 2
    REDUCE = 3
    ALL_GATHER = 4
    REDUCE_SCATTER = 5
    ALL_TO_ALL = 6
    GATHER = 7
    SCATTER = 8
    BARRIER = 9
    GRADIENTS = 10  # all-reduces that the framework starts in a backward pass, taken together:
    # from the end of this rank's own work in it
    SENDS = 12  # between two ranks and more, several at a time: not matched
    BUFFERS = 11  # what the framework broadcasts before a forward pass: running means and the like


class Flag(IntFlag):
    """Bits of a record's `flags`, by kind."""

    TRAINING = 1  # WAIT: gradients were enabled, so this is probably a batch to train with
    END = 2  # WAIT, FETCH: the source is exhausted
    ERROR = 4  # any: another exception passed through
    NON_BLOCKING = 8  # COPY
    PINNED = 16  # COPY
    IMPLICIT = 64  # SYNC: a value was read (printed, compared), which waits for the device
    ASYNC = 32  # COLLECTIVE: the call returned before it was complete; see COLLECTIVE_WAIT
    OWN = 256  # SYNC: the framework's own, which the job cannot leave out
    SKIPPED = 128  # STEP: the optimizer was left out because gradients had overflowed


class Phase(IntEnum):
    """What the trainer thread is doing; set by hooks, read by the observer with every sample."""

    OUTSIDE = 0  # before the first batch, or after the last of an epoch
    WAIT = 1  # for a batch to train with
    COMPUTE = 2  # between two batches; the records say when it was in backward, and so on
    CHECKPOINT = 6
    EVAL_WAIT = 7  # for a batch to evaluate with: gradients are disabled
    EVAL = 8  # between such a batch and the next hook
    SOURCE_START = 9  # a source is made ready
