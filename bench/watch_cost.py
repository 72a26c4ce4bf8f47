"""What `fuelline watch` costs: 8 ranks with 8 workers each, an hour old, watched for some seconds.

A second process writes spools and a journal as such a job does: 20 steps a second and rank, a frame
of the observer every second. Prints CPU time of the first look, of counting the hour before it
(spread over the first minute's refreshes), and of a refresh then (look and draw, workers shown, 50
lines), which is the share of one core at one refresh a second.

    python bench/watch_cost.py [--seconds 20] [--ranks 8] [--workers 8]
"""

from __future__ import annotations

import argparse
import fcntl
import multiprocessing
import os
import pty
import resource
import statistics
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import Any

import msgspec

from fuelline.pipeline import RunWatch
from fuelline.report import Painter, View
from fuelline.schema import wire
from fuelline.schema.run import samples
from fuelline.schema.run.journal import encode_frame
from fuelline.schema.run.recording import RUN_FILE, SPOOL_DIR, RunFacts
from fuelline.schema.wire import Flag, Kind

STEP_NS = 50_000_000
PAST_S = 3600
FIRST_PID = 3_000_000
STATES = ("running", "read", "pipe")
SCREEN = (50, 120)


class Writer:
    """Writes one spool as the hooks of one process would."""

    def __init__(self, folder: Path, pid: int, *, is_trainer: bool) -> None:
        self.pid = pid
        self.is_trainer = is_trainer
        head = bytearray(wire.HEADER_BYTES)
        now_ns = time.monotonic_ns()
        wire.HEADER.pack_into(head, 0, wire.MAGIC, wire.VERSION, pid, 1, 0x030B0000, now_ns, 0)
        if is_trainer:
            wire.NOTES.pack_into(head, wire.NOTES_OFFSET, pid, 0, 0, 0, 0, 0)
        self._file = (folder / f"{pid}-{now_ns}{wire.SUFFIX}").open("wb", buffering=0)
        self._file.write(head)

    def write(self, records: list[bytes]) -> None:
        """Append."""
        self._file.write(b"".join(records))


def step(pid: int, start_ns: int, number: int) -> list[bytes]:
    """One step that waits for input half of its time."""
    rows = (
        (start_ns, 25_000_000, 1, 32, 10**6, -1, number, pid, Flag.TRAINING, Kind.WAIT),
        (start_ns + 35_000_000, 8_000_000, 0, -1, 0, 0, 0, pid, 0, Kind.BACKWARD),
        (start_ns + 43_000_000, 2_000_000, 1, -1, 0, 0, 0, pid, 0, Kind.STEP),
    )
    return [wire.RECORD.pack(*row) for row in rows]


def fetch(pid: int, start_ns: int) -> list[bytes]:
    """One batch of a worker."""
    rows = (
        (start_ns, 300_000_000, 0, 32, 10**8, 10**6, 10**6, pid, 0, Kind.FETCH),
        (start_ns, 0, 10**6, 10**6, 32, 0, 10**6, pid, 0, Kind.FETCH_IO),
    )
    return [wire.RECORD.pack(*row) for row in rows]


def frame(pids: list[int], now_ns: int) -> bytes:
    """One second of the observer."""
    rows: list[samples.Row] = []
    for pid in pids:
        rows += [samples.ThreadState(now_ns, pid, pid, 1, state, "read", 1, 3) for state in STATES]
        rows.append(samples.ThreadClock(now_ns, pid, pid, now_ns // 3, now_ns // 9))
        rows.append(samples.ProcessClock(now_ns, pid, now_ns // 3, 1, 1, 1, 1, 1, 0, 10**9))
    names = [
        f"disk.{number}:0.{field}_bytes" for number in range(20) for field in ("read", "write")
    ]
    values = {name: float(now_ns % 10**12) for name in (*names, "psi.io.some_us", "job.cpu_ns")}
    return encode_frame([*rows, samples.HostSample(now_ns, values)])


def write_job(run_dir: Path, ranks: int, workers: int, ready: Any) -> None:
    """Write an hour of the past at once, then go on in real time until killed."""
    folder = run_dir / SPOOL_DIR
    trainers = [Writer(folder, FIRST_PID + rank * 100, is_trainer=True) for rank in range(ranks)]
    fetchers = [
        Writer(folder, trainer.pid + 1 + number, is_trainer=False)
        for trainer in trainers
        for number in range(workers)
    ]
    start_ns = time.monotonic_ns() - PAST_S * 10**9
    for trainer in trainers:
        for number in range(workers):
            told = (start_ns, 0, 1, number, trainer.pid + 1 + number, 0, 0, 1, 0, Kind.WORKER)
            trainer.write([wire.RECORD.pack(*told)])
        steps = range(PAST_S * 10**9 // STEP_NS)
        trainer.write([row for n in steps for row in step(trainer.pid, start_ns + n * STEP_NS, n)])
    pids = [each.pid for each in (*trainers, *fetchers)]
    with (run_dir / samples.JOURNAL_NAME).open("ab", buffering=0) as journal:
        journal.write(encode_frame([samples.Place(1, "/data/train/a.tar", "/data", "nfs4", "0:1")]))
        for second in range(PAST_S):
            journal.write(frame(pids, start_ns + second * 10**9))
        ready.set()
        number = 0
        while True:
            time.sleep(STEP_NS / 1e9)
            now_ns = time.monotonic_ns() - STEP_NS
            number += 1
            for trainer in trainers:
                trainer.write(step(trainer.pid, now_ns, number))
            if number % 8 == 0:
                for fetcher in fetchers:
                    fetcher.write(fetch(fetcher.pid, now_ns))
            if number % 20 == 0:
                journal.write(frame(pids, now_ns))


def main(seconds: float = 20.0, ranks: int = 8, workers: int = 8) -> dict[str, float]:
    """Watch the written job; gives the figures."""
    with tempfile.TemporaryDirectory() as name:
        run_dir = Path(name)
        (run_dir / SPOOL_DIR).mkdir()
        facts = RunFacts(
            run_id="bench",
            command=["python", "train.py"],
            host=os.uname().nodename,
            started_wall_ns=time.time_ns() - PAST_S * 10**9,
            started_ns=time.monotonic_ns() - PAST_S * 10**9,
            launcher_pid=os.getpid(),
        )
        (run_dir / RUN_FILE).write_bytes(msgspec.json.encode(facts))
        ready = multiprocessing.Event()
        writer = multiprocessing.Process(target=write_job, args=(run_dir, ranks, workers, ready))
        writer.start()
        try:
            ready.wait()
            time.sleep(1)
            return watch(run_dir, seconds)
        finally:
            writer.kill()
            writer.join()


def watch(run_dir: Path, seconds: float) -> dict[str, float]:
    """Refresh once a second on a terminal of our own."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *SCREEN, 0, 0))
    os.set_blocking(master, False)
    costs = []
    with os.fdopen(slave, "w") as terminal:
        painter, view = Painter(terminal, 1.0), View(workers=True)
        start_s = time.process_time()
        watched = RunWatch(run_dir)
        painter.paint(watched.snapshot(workers=True), view, str(run_dir))
        first_s = time.process_time() - start_s
        watched.look_at_all()
        counted_s = time.process_time() - start_s - first_s
        for _ in range(int(seconds)):
            _drain(master)
            time.sleep(1)
            start_s = time.process_time()
            watched.look()
            painter.paint(watched.snapshot(workers=True), view, str(run_dir))
            costs.append(time.process_time() - start_s)
    return {
        "first_look_cpu_ms": first_s * 1e3,
        "past_hour_cpu_ms": counted_s * 1e3,
        "refresh_cpu_ms": statistics.mean(costs) * 1e3,
        "refresh_most_cpu_ms": max(costs) * 1e3,
        "core_share": statistics.mean(costs),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0,
    }


def _drain(master: int) -> None:
    try:
        while os.read(master, 65536):
            pass
    except BlockingIOError:
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--workers", type=int, default=8)
    options = parser.parse_args()
    figures = main(options.seconds, options.ranks, options.workers)
    for name, value in figures.items():
        sys.stdout.write(f"{name:34} {value:12.5g}\n")
