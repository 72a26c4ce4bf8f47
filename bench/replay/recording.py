"""The run folder that `fuelline run` would have left: spool, journal with counters, run.json."""

from __future__ import annotations

import itertools
import json
import os
import time
from _thread import get_native_id
from typing import TYPE_CHECKING

import msgspec

from bench.replay.marks import Mark, put_beside, put_marks, window_of
from fuelline.record.spool import Spool
from fuelline.schema.run.journal import encode_frame
from fuelline.schema.run.recording import RUN_FILE, SPOOL_DIR, RunFacts
from fuelline.schema.run.samples import DeviceProcess, DeviceSample, DeviceSeen
from fuelline.schema.wire import Kind

if TYPE_CHECKING:
    from pathlib import Path

    from bench.replay.events import Call, Job

__all__ = ["write_recording"]

_SOURCE = 1
_SAMPLING_NS = 166_666_667
"""NVML's utilisation is of the last sixth of a second, in whole percent."""
_UNKNOWN = -1


def write_recording(job: Job, folder: Path, name: str, *, with_counters: bool) -> list[Mark]:
    """Write it; the marks that are in it, on the trace's clock."""
    folder.mkdir(parents=True)
    spool = Spool(str(folder / SPOOL_DIR))
    first_ns = min(call.start_ns for call in job.calls)
    shift_ns = time.monotonic_ns() - first_ns
    _introduce(spool, job, first_ns + shift_ns)
    marks = put_marks(job)
    _write_calls(spool, job.calls, shift_ns)
    for mark in (*marks, *put_beside(job)):
        _write_mark(spool, job, mark, marks[0], shift_ns)
    spool.close()
    run = RunFacts(
        run_id=name,
        command=["replay", name],
        host=os.uname().nodename,
        started_wall_ns=time.time_ns(),
        started_ns=first_ns + shift_ns,
        ended_ns=job.end_ns + shift_ns,
        exit_code=0,
    )
    (folder / RUN_FILE).write_bytes(msgspec.json.encode(run))
    if with_counters:
        rows = _counters(job, window_of(job, marks), shift_ns)
        (folder / "observer.journal").write_bytes(encode_frame(rows))
    return marks


def _introduce(spool: Spool, job: Job, at_ns: int) -> None:
    told = {"framework": "torch", "version": "replayed", "devices": None, "threads": 1}
    spool.append(int(Kind.PROCESS), at_ns, 0, spool.text(json.dumps(told)))
    for first in job.of(Kind.WAIT)[:1]:
        settings = {
            "loader": f"torch.utils.data.dataloader.{first.name}",
            "num_workers": 0 if "Single" in first.name else None,
        }
        spool.append(int(Kind.SOURCE), at_ns, 0, _SOURCE, spool.text(json.dumps(settings)))
    spool.set_trainer(get_native_id())


def _write_calls(spool: Spool, calls: list[Call], shift_ns: int) -> None:
    optimizers = {call.name: number for number, call in enumerate(calls, 1)}
    batches = 0
    for call in calls:
        fields: tuple[int, ...] = ()
        if call.kind == Kind.WAIT:
            batches += 1  # a trace begins in the middle of an epoch, so none is its first
            fields = (_SOURCE, _UNKNOWN, _UNKNOWN, _UNKNOWN, batches)
        elif call.kind == Kind.COPY:
            fields = (call.size_bytes, 0)
        elif call.kind == Kind.BACKWARD:
            fields = (0, _UNKNOWN)
        elif call.kind == Kind.STEP:
            fields = (optimizers[call.name], 0, _UNKNOWN)
        a, b, c, d, e = (*fields, *(0,) * (5 - len(fields)))
        start_ns, length_ns = call.start_ns + shift_ns, call.end_ns - call.start_ns
        spool.append(int(call.kind), start_ns, length_ns, a, b, c, d, e, call.flags)


def _write_mark(spool: Spool, job: Job, mark: Mark, first: Mark, shift_ns: int) -> None:
    spool.append(
        int(Kind.MARK),
        mark.host_ns + shift_ns,
        mark.known_ns - mark.host_ns,
        job.device,
        mark.device_ns - first.device_ns,
        1,
        mark.stream,
        int(mark.place),
    )


def _counters(
    job: Job, window: tuple[int, int], shift_ns: int
) -> list[DeviceSeen | DeviceSample | DeviceProcess]:
    """What the driver's library would have said of the device, once a sampling period.

    A trace lasts some steps and a recording minutes, so the periods are laid out to fill the steps:
    one that hangs over either end would weigh as much as it never does. For the same reason they
    are the device's steps, by however much that is behind the host.
    """
    start_ns, end_ns = window
    late_ns = max(0, end_ns - max(call.end_ns for call in job.calls))
    device = f"gpu{job.device}"
    rows: list[DeviceSeen | DeviceSample | DeviceProcess] = [
        DeviceSeen(start_ns + shift_ns, device, "nvidia", "replayed"),
        DeviceProcess(start_ns + shift_ns, device, os.getpid(), _UNKNOWN, True),  # noqa: FBT003
    ]
    count = max(1, round((end_ns - start_ns) / _SAMPLING_NS))
    edges = [start_ns + (end_ns - start_ns) * place // count for place in range(count + 1)]
    for begun_ns, ended_ns in itertools.pairwise(edges if end_ns - start_ns >= count else []):
        busy_ns = _covered(job.kernels, begun_ns, ended_ns)
        share = round(100 * busy_ns / (ended_ns - begun_ns)) / 100
        values = {"util.gpu_frac": share, "job.frac": 1.0}
        rows.append(DeviceSample(ended_ns - late_ns + shift_ns, device, values))
    return rows


def _covered(spans: list[tuple[int, int]], start_ns: int, end_ns: int) -> int:
    """How much of a stretch some of the spans, by start, cover."""
    covered, reached = 0, start_ns
    for begun, ended in spans:
        if begun >= end_ns:
            break
        covered += max(0, min(ended, end_ns) - max(begun, reached))
        reached = max(reached, min(ended, end_ns))
    return covered
