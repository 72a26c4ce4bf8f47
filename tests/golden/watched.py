"""Snapshots of a running job for the golden screens; `tests.golden.freeze` writes them."""

from __future__ import annotations

import io
import time

import msgspec
import pytest

from fuelline.report import View, print_snapshot
from fuelline.schema.diagnosis.facts import PlaceFacts
from fuelline.schema.diagnosis.live import DeviceRow, HostLine, RankRow, Share, Snapshot, WorkerRow
from fuelline.schema.run.recording import Blindspot, RunFacts

RUN = RunFacts(
    run_id="20260412-093015-train-4711",
    command=["/usr/bin/torchrun", "--nproc-per-node", "4", "train.py", "--epochs", "2"],
    host="node7",
    started_wall_ns=1_775_986_215_000_000_000,
    started_ns=0,
)
HOST = HostLine(
    cores_used=11.3,
    cores_allowed=16,
    cores_others=0.4,
    cpu_pressure_frac=0.034,
    io_pressure_frac=0.61,
    memory_pressure_frac=0,
    disk_read_bytes_per_s=123e6,
    disk_write_bytes_per_s=2.1e6,
    net_in_bytes_per_s=310e6,
    net_out_bytes_per_s=None,
)
DEVICES = [
    DeviceRow(
        device=f"gpu{number}", reported_frac=0.97, sm_frac=0.34, watts=410.4, memory_bytes=61e9
    )
    for number in range(2)
]
DEVICES += [
    DeviceRow(device="gpu2", reported_frac=1, watts=698, memory_bytes=8e10, throttled_frac=0.9),
    DeviceRow(device="gpu3", is_lost=True),
    DeviceRow(device="gpu4"),
]
UNSEEN = Blindspot(what="GPU counters", why="no NVML library was found", forbids="GPU truth")


def shares(**fracs: float) -> list[Share]:
    return [Share(part=part.replace("_", " "), frac=frac) for part, frac in fracs.items()]


def place(path: str) -> PlaceFacts:
    return PlaceFacts(
        path=path, mount="/data", fstype="nfs4", device="0:44", syscall="pread64", share=0.8
    )


def make_workers(pid: int) -> list[WorkerRow]:
    return [
        WorkerRow(pid=pid, worker_id=None, mix=shares(running=0.2, for_core=0.01, idle=0.79)),
        WorkerRow(
            pid=pid + 1,
            worker_id=0,
            source_id=1,
            fetch_s=0.412,
            mix=shares(running=0.21, for_core=0.04, read=0.7, idle=0.05),
            place=place("/data/imagenet/train/n01440764/n01440764_10026.JPEG"),
        ),
        WorkerRow(pid=pid + 2, worker_id=1, source_id=2),
    ]


def make_ranks() -> list[RankRow]:
    return [
        RankRow(
            pid=123456,
            rank=0,
            steps=12_345,
            steps_per_s=12.42,
            step_mean_s=0.0805,
            step_p95_s=0.0952,
            samples_per_s=3179,
            shares=shares(input=0.62, compute=0.3, loop=0.05, checkpoint=0.03),
            phase="input",
            phase_s=0.01,
            workers=make_workers(123456),
        ),
        RankRow(
            pid=123460,
            rank=1,
            steps=12_345,
            steps_per_s=12.4,
            step_mean_s=0.0806,
            step_p95_s=0.1012,
            samples_per_s=3174,
            shares=shares(input=0.04, compute=0.5, collectives=0.46),
            phase="compute",
            phase_s=0.02,
            workers=make_workers(123460)[:1],
        ),
        RankRow(pid=123464, rank=2, phase="checkpoint", phase_s=34.2, step_kind="batch"),
        RankRow(pid=123468, steps=7, phase="ended"),
    ]


def make_snapshots() -> dict[str, tuple[Snapshot, View]]:
    """A job of four ranks, with its workers, and one that has ended before its first step."""
    running = Snapshot(
        run=RUN,
        state="running",
        run_s=725,
        window_s=10,
        ranks=make_ranks(),
        host=HOST,
        devices=DEVICES,
        blindspots=[UNSEEN, UNSEEN],
    )
    facts = msgspec.structs.replace(RUN, ended_ns=1, exit_code=-9)
    ended = Snapshot(run=facts, state="ended", run_s=70.2, window_s=10)
    return {
        "watch": (running, View()),
        "watch_workers": (running, View(workers=True, sort=3, reverse=True)),
        "watch_ended": (ended, View()),
    }


def draw_watched(snapshot: Snapshot, view: View) -> str:
    """The snapshot as it goes to a pipe, at the same time of day everywhere."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        print_snapshot(snapshot, view, stream, "/home/me/runs/20260412-093015-train-4711")
    time.tzset()
    stream.seek(0)
    return stream.read()
