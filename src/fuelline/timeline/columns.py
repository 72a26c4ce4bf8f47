"""What the public tables hold and what their columns mean; docs/api.md is made of this.

A test sees to it that every column of every table has its words here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARED: Mapping[str, str] = {
    "host": "number of the host, from 0",
    "rank": "number of the rank",
    "pid": "process",
    "tid": "thread",
    "start_ns": "when it began, on the run's clock",
    "end_ns": "when it ended, on the run's clock",
    "dur_ns": "how long it lasted",
    "at_ns": "when it was read, on the run's clock",
    "is_error": "an exception passed through",
    "is_end": "the source was exhausted: no batch",
    "cpu_ns": "CPU time of the thread in it; null where it was not read",
    "size_bytes": "bytes; null if not known",
    "samples": "samples in the batch",
    "source_id": "number of the input source (a loader), from 1",
    "worker": "number of the source's worker; null: in the training process itself",
    "device": "number of the accelerator",
    "place": "`id` in `places`; 0: not known",
    "count": "samples (of the observer) that saw this",
}
"""Columns that mean the same in every table, unless the table says otherwise."""

TABLES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "waits": (
        "The training loop asks an input source for a batch until it has it.",
        {
            "position": "of the batch in its epoch; 0 is the first",
            "is_training": "gradients were enabled",
        },
    ),
    "source_starts": ("A source is made ready for an epoch; its workers start here.", {}),
    "fetches": (
        "A batch is made: read, transformed, collated.",
        {
            "runq_ns": "ready to run, without a core",
            "collate_ns": "of it, in `collate_fn`",
        },
    ),
    "fetch_reads": (
        "What the thread of a fetch read; same `pid`, `tid` and `start_ns` as in `fetches`.",
        {
            "rchar_bytes": "bytes read by any call, page cache included",
            "disk_read_bytes": "bytes that came from a disk",
            "read_calls": "read system calls",
            "major_faults": "page faults that waited for a disk",
            "system_ns": "CPU time in the kernel",
        },
    ),
    "workers": ("Which process is which worker of a source.", {"worker_pid": "its process"}),
    "handoffs": (
        "A worker serialises a batch for the training process.",
        {"pickled_bytes": "bytes through the pipe", "size_bytes": "bytes of the batch"},
    ),
    "pins": ("A batch is copied to pinned memory.", {}),
    "copies": (
        "A tensor is copied to a device.",
        {
            "is_non_blocking": "the call need not wait for the copy",
            "is_pinned": "from pinned memory",
        },
    ),
    "backwards": (
        "A backward pass, as far as the host is in it.",
        {
            "graph_nodes": "nodes of the graph; 0: not counted this time",
            "engine_cpu_ns": "CPU time of autograd's thread for a device; 0: none, or not read",
        },
    ),
    "step_ends": (
        "A step has ended.",
        {
            "stepper_id": "number of who steps (an optimizer), from 1",
            "step_kind": "`train`; `replay` of a captured graph",
            "is_skipped": "the optimizer was left out because gradients had overflowed",
            "cpu_clock_ns": "CPU time of the thread so far; null or 0 where it was not read",
        },
    ),
    "pauses": (
        "The training loop stands still.",
        {"pause_kind": "`checkpoint`, `validation`; null if it is of another kind"},
    ),
    "syncs": (
        "The host waits for the device.",
        {
            "device": "number of the accelerator; null: the current one",
            "is_implicit": "a value was read, as by `.item()`",
            "is_own": "by the framework itself, as in a gradient scaler's step",
        },
    ),
    "collections": (
        "A garbage collection of 1 ms or more.",
        {"generation": "0, 1 or 2", "collected": "objects"},
    ),
    "collectives": (
        "Ranks do something together; `start_ns` is the arrival of this one.",
        {
            "operation": "`all_reduce`, `gradients` (of DDP), ...",
            "group": "number of the process group",
            "number": "of the operation in its group; null: cannot be matched",
            "ranks": "ranks in the group",
            "is_async": "the call returned before it was complete",
        },
    ),
    "collective_waits": (
        "An asynchronous collective is waited for.",
        {
            "operation": "as in `collectives`",
            "group": "number of the process group",
            "number": "as in `collectives`",
            "ranks": "ranks in the group",
        },
    ),
    "flops": ("A step's work, where it is counted.", {"flops": "floating-point operations"}),
    "device_steps": (
        "A step as the device saw it, in recordings before there were `device_marks`.",
        {
            "busy_ns": "from its first kernel to its last",
            "idle_before_ns": "idle before the first",
        },
    ),
    "device_marks": (
        "Events that the host queued on a device: where it was, and when the device passed them.",
        {
            "dur_ns": "until the host knew that the device had passed it",
            "device_ns": "when the device passed it, by its own clock",
            "clock": "number of that clock; other numbers do not compare",
            "stream": "queue of the device",
            "mark_place": "`wait_begin`, `wait_end`, `copy_begin`, `copy_end`, `sync_begin`, ...",
        },
    ),
    "states": (
        "What threads were doing when the observer looked, added up over a window.",
        {
            "window_ns": "start of the window, of one second",
            "phase": "of the training loop: 1 waits for a batch, 2 computes, 6 saves; null: none",
            "state": "`running`, `fault`, `read`, `write`, `metadata`, `lock`, `sleep`, ...",
            "syscall": "system call that the thread was blocked in; empty: in none",
        },
    ),
    "places": (
        "Files and mounts that threads were blocked on.",
        {
            "id": "as `place` in other tables",
            "path": "file, folder or socket",
            "mount": "where its file system is mounted",
            "fstype": "`ext4`, `nfs4`, ...",
            "device": "major:minor of the mount",
        },
    ),
    "clocks": (
        "CPU time of threads, ever growing.",
        {"oncpu_ns": "on a core", "runq_ns": "ready to run, without a core"},
    ),
    "processes": (
        "Counters of processes, ever growing.",
        {
            "cpu_ns": "CPU time",
            "rchar_bytes": "bytes read by any call, page cache included",
            "disk_read_bytes": "bytes read from disks",
            "read_calls": "read system calls",
            "wchar_bytes": "bytes written by any call",
            "disk_write_bytes": "bytes written to disks",
            "major_faults": "page faults that waited for a disk",
            "rss_bytes": "memory now",
        },
    ),
    "seen": (
        "Processes of the job.",
        {
            "ppid": "parent",
            "name": "name of the program",
            "started_ns": "when it started, by the kernel; 0: not written",
        },
    ),
    "host": (
        "Counters of the machine, one a row.",
        {"name": "such as `job.cpu_ns`", "value": "in the unit that the name says"},
    ),
    "stacks": (
        "Stack samples.",
        {
            "from_ns": "start of the burst",
            "until_ns": "its end",
            "frames": "`function (file:line)`, the outermost first",
        },
    ),
    "others": (
        "Processes outside the job that did noticeable work.",
        {
            "interval_ns": "that the figures are over",
            "name": "name of the program",
            "cpu_ns": "CPU time",
            "disk_read_bytes": "bytes read from disks",
            "disk_write_bytes": "bytes written to disks",
            "calls": "read and write system calls; null: the kernel refused",
            "blocked": "threads that were blocked there",
        },
    ),
    "devices": (
        "Counters of accelerators, one a row.",
        {
            "device": "identifier of the accelerator",
            "name": "name of the counter",
            "value": "in the unit that the name says",
        },
    ),
    "device_processes": (
        "Processes on accelerators.",
        {
            "device": "identifier of the accelerator",
            "memory_bytes": "on the device; 0: it has left; null: the driver does not say",
            "of_job": "whether it is the job's",
        },
    ),
}
"""Of recorded runs."""

TRACE_TABLES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "device": (
        "What ran on accelerators.",
        {
            "stream": "queue of the device",
            "name": "number in `names`",
            "kind": "1 kernel, 2 copy, 3 set, 4 computes, 5 communicates",
            "correlation": "the call that launched it has the same",
            "external": "the operator that it belongs to has the same",
            "size_bytes": "of a copy, a set, or what a collective moves",
            "direction": "1 host to device, 2 device to host, 3 within, 4 between devices",
            "blocks": "of the grid",
            "threads": "of a block",
            "registers": "of a thread",
            "shared_bytes": "of a block",
            "occupancy": "0 to 1, as the profiler estimates it",
            "graph": "the graph that launched it",
            "group": "number in `names` of a collective's process group",
            "sequence": "of a collective within its group",
        },
    ),
    "host": (
        "What the host did.",
        {
            "thread": "of the host",
            "name": "number in `names`",
            "kind": "1 operator, 2 runtime call, 3 annotation, 4 Python, 5 profiler, 6 other",
            "correlation": "what it launched has the same",
            "external": "what belongs to it has the same",
        },
    ),
    "steps": ("Steps that the trace marks.", {"step": "its number"}),
    "ops": (
        "Operators whose work is known.",
        {
            "external": "kernels that belong to it have the same",
            "flops": "floating-point operations",
            "least_bytes": "inputs and outputs once",
            "dtype": "of its inputs",
        },
    ),
    "names": ("Texts of the names of a rank.", {"name": "number", "text": "what it stands for"}),
    "counters": (
        "Sampled values.",
        {
            "device": "number of the accelerator; null: of the host",
            "name": "what was sampled",
            "value": "in the unit that the name says",
        },
    ),
}
"""Of imported runs."""
