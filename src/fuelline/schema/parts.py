"""What time goes to, as codes: the parts of a step and of a device's ledger, causes of idleness.

They stand in the JSON of a diagnosis, so that a code never changes; what a report calls it may
(`report/diagnosis/words.py:PART_WORDS`). Compare with these codes only: mypy refuses another word.
"""

from __future__ import annotations

from typing import Literal, get_args

StepPart = Literal[
    "input",
    "epoch start",
    "transfer",
    "own code",
    "forward",
    "backward",
    "optimizer",
    "collectives",
    "sync",
    "loop",
    "validation",
    "checkpoint",
    "compile",
    "garbage collection",
    "profiler",
    "unexplained",
]
"""Where the trainer's time went, in the order of a step.

collectives: in a call that all ranks take part in, whichever part of the step it belongs to.
input: waiting for a training batch. epoch start: building an iterator, its first batch, its end.
own code: the user's code between a batch and its backward pass, outside the model; a part of
forward, which stack samples tell apart. loop: the user's code between an optimizer step and the
next batch. profiler: our own `--zoom`. unexplained: not even that."""
STEP_PARTS: tuple[StepPart, ...] = get_args(StepPart)

Pause = Literal["checkpoint", "validation", "compile", "loop", "garbage collection", "epoch start"]
"""Parts that can be made rarer."""
PAUSES: tuple[Pause, ...] = get_args(Pause)

LedgerPart = Literal[
    "useful compute",
    "exposed transfer",
    "waiting for a peer",
    "undivided communication",
    "copies",
    "data wait",
    "launch-bound",
    "host code",
    "allocation",
    "synchronisation",
    "start-up",
    "profiler overhead",
    "unknown",
]
"""Where a device's wall time went, each instant counted once, the first that fits. Exposed: no
kernel computes meanwhile. Undivided: communication whose transfer cannot be told from waiting,
because other ranks' traces are not there. The parts after copies are idle time by its cause.
data wait: the next input is not there, in a loader or because the host prepares it. host code: the
host does something else than launching, for so long that no launch takes as long. allocation: it
allocates or frees device memory.
start-up: what is paid once, as for loading a kernel's code, the first memory, capturing a graph;
and, where no step is marked, what happened once only."""
LEDGER_PARTS: tuple[LedgerPart, ...] = get_args(LedgerPart)

DevicePart = Literal[
    "computing",
    "host-paced",
    "waiting for the host",
    "waiting for input",
    "copies",
    "collectives",
    "pauses",
    "unknown",
]
"""Where a device's time went in a recorded run, by events on its own clock.

waiting for the host: nothing was queued, because launches or the loop's own code take longer.
host-paced: the device was never behind the host, so that computing cannot be told from waiting for
launches; the driver's utilisation divides it where there is one. pauses: checkpoints, validation
and starts of epochs. unknown: no event covers it."""
DEVICE_PARTS: tuple[DevicePart, ...] = get_args(DevicePart)

Part = StepPart | LedgerPart
"""A part of a budget: of a recorded run's steps, or of an imported trace's devices."""

HostCause = Literal[
    "profiler",
    "start-up",
    "data loader",
    "synchronise",
    "memcpy",
    "allocator",
    "garbage collection",
    "kernel launches",
    "operators",
    "python",
]
"""What a host does while its device is idle. If it does several of these at one moment, the first
is what it is blamed for. start-up: it captures a graph, or loads the code of what it launches."""
HOST_CAUSES: tuple[HostCause, ...] = get_args(HostCause)

IdleCause = (
    HostCause
    | Literal[
        "python between steps",
        "launch latency",
        "dependency on the device",
        "one-off",
        "unrecorded work",
        "inside a graph",
        "not recorded",
    ]
)
"""Why a device is idle. inside a graph: a graph runs and none of its kernels does, because they
wait for each other or were not recorded. one-off: the host is to blame, in a stretch that nothing
as long follows, and no step is marked that it would belong to. unrecorded work: the next kernel was
queued and the host waited for the device, so that the device did something that the trace lacks."""

Activity = Literal[
    "computing longer than the others",
    "computing longer than its replicas",
    "copying",
    "in another collective",
    "waiting at another collective",
]
"""What a device does, rather than idle, while the others wait for its rank at a collective."""
