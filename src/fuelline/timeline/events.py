"""Events by what they are, with named columns: the one file that knows the fields of a record.

A record has five integers, a to e, that mean something else for every kind (`schema/wire.py`), and
so has a row of the table `events`. Here each kind gets its names; past this file nobody reads a to
e. Every table has `pid`, `tid`, `flags`, `start_ns`, `dur_ns` and `end_ns`, and then the columns
that its function names. Numbers are -1 where they are not known: some are read at a few calls only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.wire import Collective, Flag, Kind, MarkPlace, PauseKind, StepKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import IntEnum

    from fuelline.timeline.timeline import Timeline

_COLLECTIVE = {"op": "a", "size_bytes": "b", "group": "c", "number": "d", "ranks": "e"}
_FIELDS: Mapping[Kind, Mapping[str, str]] = {
    Kind.WAIT: {
        "source_id": "a",
        "samples": "b",
        "size_bytes": "c",
        "cpu_ns": "d",
        "position": "e",
    },
    Kind.SOURCE_START: {"source_id": "a", "whole_ns": "e"},
    Kind.FETCH: {"worker": "a", "samples": "b", "cpu_ns": "c", "runq_ns": "d", "collate_ns": "e"},
    Kind.WORKER: {"source_id": "a", "worker": "b", "worker_pid": "c"},
    Kind.FETCH_IO: {
        "rchar_bytes": "a",
        "disk_read_bytes": "b",
        "read_calls": "c",
        "major_faults": "d",
        "system_ns": "e",
    },
    Kind.HANDOFF: {"pickled_bytes": "a", "cpu_ns": "b", "worker": "c", "size_bytes": "d"},
    Kind.PIN: {"size_bytes": "a"},
    Kind.COPY: {"size_bytes": "a", "device": "b"},
    Kind.BACKWARD: {"graph_nodes": "a", "cpu_ns": "b", "engine_cpu_ns": "c"},
    Kind.STEP: {"stepper_id": "a", "step_kind": "b", "cpu_clock_ns": "c"},
    Kind.PAUSE: {"size_bytes": "a", "pause_kind": "c"},
    Kind.SYNC: {"device": "a"},
    Kind.GC: {"generation": "a", "collected": "b"},
    Kind.COLLECTIVE: _COLLECTIVE,
    Kind.COLLECTIVE_WAIT: _COLLECTIVE,
    Kind.FLOPS: {"flops": "a"},
    Kind.DEVICE_STEP: {"device": "a", "busy_ns": "b", "idle_before_ns": "c"},
    Kind.MARK: {"device": "a", "device_ns": "b", "clock": "c", "stream": "d", "place": "e"},
    Kind.CREW: {"source_id": "a", "member": "b", "cpu_ns": "c", "queued_ns": "d"},
    Kind.NODE: {
        "source_id": "a",
        "node": "b",
        "busy_ns": "c",
        "elements": "d",
        "held_elements": "e",
    },
}
_FLAGS: Mapping[Kind, Mapping[str, Flag]] = {
    Kind.COLLECTIVE: {"is_async": Flag.ASYNC},
    Kind.COPY: {"is_non_blocking": Flag.NON_BLOCKING, "is_pinned": Flag.PINNED},
    Kind.FETCH: {"is_end": Flag.END},
    Kind.WAIT: {"is_training": Flag.TRAINING, "is_end": Flag.END},
    Kind.SYNC: {"is_implicit": Flag.IMPLICIT, "is_own": Flag.OWN},
    Kind.STEP: {"is_skipped": Flag.SKIPPED},
}
_NAMES = {
    Kind.WAIT: "waits",
    Kind.SOURCE_START: "source_starts",
    Kind.FETCH: "fetches",
    Kind.FETCH_IO: "fetch_reads",
    Kind.WORKER: "workers",
    Kind.HANDOFF: "handoffs",
    Kind.PIN: "pins",
    Kind.COPY: "copies",
    Kind.BACKWARD: "backwards",
    Kind.STEP: "step_ends",
    Kind.PAUSE: "pauses",
    Kind.SYNC: "syncs",
    Kind.GC: "collections",
    Kind.COLLECTIVE: "collectives",
    Kind.COLLECTIVE_WAIT: "collective_waits",
    Kind.FLOPS: "flops",
    Kind.DEVICE_STEP: "device_steps",
    Kind.MARK: "device_marks",
}
EVENT_TABLES: Mapping[str, Kind] = {name: kind for kind, name in _NAMES.items()}
"""Table to the kind of event that it holds."""
_WORDS: Mapping[str, tuple[str, type[IntEnum]]] = {
    "op": ("operation", Collective),
    "pause_kind": ("pause_kind", PauseKind),
    "step_kind": ("step_kind", StepKind),
    "place": ("mark_place", MarkPlace),
}
"""Columns that are words for the public: their name there, and the enum of their numbers."""
_FAILED = int(Flag.END | Flag.ERROR)


def of_thread(pid: int, tid: int) -> pl.Expr:
    """Whether an event is of this thread of this process."""
    return (pl.col("pid") == pid) & (pl.col("tid") == tid)


def has_succeeded() -> pl.Expr:
    """Whether the call gave something: neither the end of an epoch nor an exception."""
    return pl.col("flags").cast(pl.Int64) & _FAILED == 0


def is_own() -> pl.Expr:
    """Whether a synchronisation is the framework's own, which the job cannot leave out."""
    return pl.col("flags").cast(pl.Int64) & int(Flag.OWN) != 0


def batches(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """Waits for a batch, from asking to having it.

    `source_id`: whose batch. `samples`, `size_bytes` of the batch. `cpu_ns`: the waiting thread on
    a core, mostly unpickling. `position` in the epoch; 0 is its first batch.
    """
    return _of(timeline, Kind.WAIT, where)


def source_starts(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """Sources being made ready for an epoch: their workers start.

    `source_id`: which. `whole_ns`: how long it took where an excerpt has cut it, else 0.
    """
    return _of(timeline, Kind.SOURCE_START, where)


def fetches(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """One batch being prepared, by a worker or in the trainer itself.

    `worker`: its number, -1 in the trainer. `samples` of the batch. `cpu_ns` on a core, `runq_ns`
    waiting for one, `collate_ns` joining samples to a batch.
    """
    return _of(timeline, Kind.FETCH, where)


def fetch_reads(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """What a fetch read; it has the same pid, tid and start.

    `rchar_bytes` by read calls, `disk_read_bytes` from the block layer, `read_calls`,
    `major_faults`: page faults that waited for a disk, `system_ns`: time in the kernel.
    """
    return _of(timeline, Kind.FETCH_IO, where)


def worker_starts(timeline: Timeline) -> pl.DataFrame:
    """Workers as the trainer started them: `source_id`, `worker` (its number) and `worker_pid`."""
    return _of(timeline, Kind.WORKER, pl.lit(value=True))


def handoffs(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """A worker serialising a batch.

    `pickled_bytes`: of the message, shared memory left out. `cpu_ns`. `worker`: its number.
    `size_bytes` of the batch.
    """
    return _of(timeline, Kind.HANDOFF, where)


def copies(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """Copies to a device, as long as they kept the caller: `size_bytes`, `device` (its index)."""
    return _of(timeline, Kind.COPY, where)


def backward_passes(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """Backward passes.

    `graph_nodes`: of its graph, 0 if they were not counted this time. `cpu_ns` of the thread,
    `engine_cpu_ns` of autograd's own for a device; 0 or less: there is none, or it was not read.
    """
    return _of(timeline, Kind.BACKWARD, where)


def step_ends(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """Ends of steps: `stepper_id` is who steps, such as an optimizer; `step_kind`: a `StepKind`.

    `cpu_clock_ns`: the thread's CPU time so far; 0 or less where that was not read.
    """
    return _of(timeline, Kind.STEP, where)


def synchronisations(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """The host waiting for a device: `device` is its index."""
    return _of(timeline, Kind.SYNC, where)


def collectives(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """Calls that all ranks of a group take part in; `start_ns` is the arrival of this rank.

    `op`: a `Collective`. `size_bytes`. `group`: its number. `number` of the call among those of its
    group and op, -1 if it cannot be matched. `ranks` in the group.
    """
    return _of(timeline, Kind.COLLECTIVE, where)


def collective_waits(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """Waits for asynchronous collectives; columns as of `collectives`."""
    return _of(timeline, Kind.COLLECTIVE_WAIT, where)


def device_steps(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """Steps by the device's own clock.

    `device`: its index. `busy_ns`: from its first to its last kernel. `idle_before_ns`: until then.
    """
    return _of(timeline, Kind.DEVICE_STEP, where)


def device_marks(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """Events that the host queued on a device at `start_ns`; at `end_ns` it knew them passed.

    `device`: its index. `device_ns`: when the device passed it, by its own clock, whose number is
    `clock`. `stream`. `place`: a `wire.MarkPlace`.
    """
    return _of(timeline, Kind.MARK, where)


def counted_steps(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """Steps whose floating-point operations were counted: `flops`."""
    return _of(timeline, Kind.FLOPS, where)


def crews(timeline: Timeline) -> pl.DataFrame:
    """Threads of the trainer's process that prepare batches: `source_id` and `member`, its tid."""
    return _of(timeline, Kind.CREW, pl.lit(value=True))


def nodes(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """Stages of a pipeline as its framework counts them, since the iterator began.

    `source_id`. `node`: one of one iterator; its last 8 bits are its place, as `NodeFacts.id`.
    `busy_ns`: time that calls of it took, all together. `elements` that it has produced.
    `held_elements` in its buffer. `flags`: calls that run at once, 0 where that cannot be set.
    """
    return _of(timeline, Kind.NODE, where)


def thread_events(timeline: Timeline, pid: int, tid: int) -> pl.DataFrame:
    """All that a thread did: kind, flags, start_ns, end_ns, owner, pause_kind, step_kind, position.

    `owner` is what the event belongs to, by its kind: a source's or a stepper's number.
    `pause_kind`: the `wire.PauseKind` of a PAUSE, null for others; `step_kind` likewise of a STEP.
    `position` as of `batches`. Marks on a device are not among them.
    Outer events stand before those inside them. Only these columns: of a million events all of them
    take 100 MB.
    """
    return (
        timeline.table("events")
        .lazy()
        .filter(of_thread(pid, tid) & (pl.col("kind") != Kind.MARK))
        .select(
            "kind",
            "flags",
            "start_ns",
            end_ns=pl.col("start_ns") + pl.col("dur_ns"),
            owner="a",
            pause_kind=pl.when(pl.col("kind") == Kind.PAUSE).then("c").cast(pl.Int8, strict=False),
            step_kind=pl.when(pl.col("kind") == Kind.STEP).then("b").cast(pl.Int8, strict=False),
            position="e",
        )
        .sort("start_ns", "end_ns", descending=[False, True])
        .collect()
    )


def learning_events(timeline: Timeline, where: pl.Expr) -> pl.DataFrame:
    """Batches, backward passes and steps: pid, tid, kind, flags, start_ns, source_id.

    `source_id` is whose batch it is; of the others it says nothing.
    """
    kinds = [Kind.WAIT, Kind.BACKWARD, Kind.STEP]
    return (
        timeline.table("events")
        .lazy()
        .filter(pl.col("kind").is_in(kinds) & where)
        .select("pid", "tid", "kind", "flags", "start_ns", source_id="a")
        .collect()
    )


def pick(kind: Kind, name: str) -> pl.Expr:
    """A named field of the events of one kind in the table `events`; null for others, or unknown.

    For who shows events of all kinds side by side.
    """
    field = pl.col(_FIELDS[kind][name])
    return pl.when((pl.col("kind") == int(kind)) & (field >= 0)).then(field)


def _of(timeline: Timeline, kind: Kind, where: pl.Expr) -> pl.DataFrame:
    named = {name: pl.col(field) for name, field in _FIELDS[kind].items()}
    return (
        timeline.table("events")
        .lazy()
        .filter((pl.col("kind") == int(kind)) & where)
        .select(
            "pid",
            "tid",
            "flags",
            "start_ns",
            "dur_ns",
            end_ns=pl.col("start_ns") + pl.col("dur_ns"),
            **named,
        )
        .collect()
    )


def name_events(events: pl.DataFrame, table: str) -> pl.DataFrame:
    """The events of one kind for the public: null is what is not known, flags are true or false.

    kind flags    start_ns a  b   c      source_id samples size_bytes ... is_training is_end
    WAIT TRAINING 100      1  32  -1  -> 1         32      null           true        false
    """
    kind = EVENT_TABLES[table]
    found = events.filter(pl.col("kind") == int(kind))
    flags = {**_FLAGS.get(kind, {}), "is_error": Flag.ERROR}
    return found.select(
        "pid",
        "tid",
        "start_ns",
        "dur_ns",
        *(_shown(name, field) for name, field in _FIELDS[kind].items() if name != "whole_ns"),
        *((pl.col("flags") & int(flag) != 0).alias(name) for name, flag in flags.items()),
    ).sort("start_ns")


def _shown(name: str, field: str) -> pl.Expr:
    if name not in _WORDS:
        return pl.when(pl.col(field) >= 0).then(pl.col(field)).alias(name)
    shown, kinds = _WORDS[name]
    words = {int(each): each.name.lower() for each in kinds}
    named = pl.col(field).replace_strict(words, default=None, return_dtype=pl.String())
    return named.alias(shown)
