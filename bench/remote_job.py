"""Jobs of bench.remote: what it measures runs in a process of its own, on a host of its own.

`job`: a training whose samples take a core here and none elsewhere (where FAR is set), so that a
host with one core cannot feed it. `line` and `failure` use the loader's iterator by itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SAMPLES, BATCH, WORK_S, STEP_S = 4000, 4, 0.02, 0.01
TASKS = 60


class Rows(Dataset[Any]):
    """Samples that cost work."""

    def __init__(self, count: int, width: int, work_s: float) -> None:
        self.count, self.width, self.work_s = count, width, work_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if os.environ.get("FAR"):
            time.sleep(self.work_s)
        else:
            end = time.thread_time() + self.work_s
            while time.thread_time() < end:
                pass
        return torch.full((self.width,), float(index)), index


def train(*, is_quick: bool = False) -> str:
    """A hash of all that came, in its order; `is_quick`: without work and without steps."""
    rows = Rows(SAMPLES, 20_000, 0.0 if is_quick else WORK_S)
    seen = hashlib.sha256()
    order = torch.Generator().manual_seed(7)
    for batch, number in DataLoader(rows, BATCH, shuffle=True, num_workers=2, generator=order):
        seen.update(batch.numpy().tobytes() + number.numpy().tobytes())
        if not is_quick:
            time.sleep(STEP_S)
    return seen.hexdigest()


def run_plainly() -> str:
    """What the job gives without anything of ours."""
    torch.set_num_threads(1)
    return train(is_quick=True)


def _open(address: str, rows: Any, workers: int) -> tuple[Any, Any, Any]:
    """An iterator with a remote worker, whose local workers have nothing to do."""
    from bench.elastic_case import Scripted, draw_case
    from bench.remote_case import RemoteCase, RemoteScript

    class Place:
        def address(self) -> str:
            return address

        def list_workers(self, helper: int) -> list[int]:
            del helper
            return []

    import random
    from dataclasses import replace

    case = replace(draw_case(random.Random(1)), workers=1, spare=1, resizes=(), kills=())
    case = replace(case, kind="plain", persistent=False, in_order=True, prefetch=2)
    script = RemoteScript(RemoteCase(case, workers, 0, ()), Place())  # type: ignore[arg-type]
    assert isinstance(script, Scripted)
    from fuelline.fix.elastic.iterator import build

    loader = DataLoader(rows, 1, num_workers=1, prefetch_factor=2)
    iterator = build(loader, script)
    return iterator, script, script.crew


class Ready(Dataset[Any]):
    """Batches that take no time: there is one, and it is sent again and again."""

    def __init__(self, size: int, count: int) -> None:
        self.size, self.count = size, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if not hasattr(self, "row"):
            self.__dict__["row"] = np.ones(self.size // 4, dtype=np.float32)
        return self.row


def measure_line(size: int, address: str) -> dict[str, float]:
    """Only the remote worker has work, with a window of eight."""
    count = max(40, min(3000, int(1.2e9 / size)))
    iterator, _, crew = _open(address, Ready(size, count), 1)
    iterator.fl_active = 0
    iterator.fl_resize(0, 8, 1)
    for _ in range(12):
        next(iterator)
    began, began_s, taken = time.monotonic(), time.process_time(), 0
    for _ in iterator:
        taken += 1
    seconds, cpu_s = time.monotonic() - began, time.process_time() - began_s
    crew.close()
    return {"size": size, "bytes_per_s": taken * size / seconds, "cpu_s": cpu_s / taken}


def measure_failure(what: str, address: str) -> dict[str, float]:
    """Seconds from the failure to the loader's notice of it."""
    rows = Rows(400, 50_000, 0.0)
    iterator, script, crew = _open(address, rows, 1)
    iterator.fl_resize(1, 8, 1)
    noticed: list[float] = []
    again: list[int] = []
    under_way = 0
    lose, move = script.lose_remote, iterator._fl_move

    def note(which: Any) -> None:
        noticed.append(time.monotonic())
        lose(which)

    def count(worker_id: int) -> None:
        again.append(sum(entry == (worker_id,) for entry in iterator._task_info.values()))
        move(worker_id)

    script.lose_remote, iterator._fl_move = note, count
    seen, failed = [], 0.0
    for number, (_, index) in enumerate(iterator):
        seen.append(int(index))
        time.sleep(0.02)
        if number == 60:
            remote = iterator._fl_remote[0]
            under_way = sum(entry == (remote,) for entry in iterator._task_info.values())
            failed = _fail(what, crew)
    is_same = seen == list(range(len(rows)))
    crew.close()
    return {
        "seconds": noticed[0] - failed if noticed else -1.0,
        "again": sum(again), "under_way": max(under_way, sum(again)), "is_same": float(is_same),
    }  # fmt: skip


def _fail(what: str, crew: Any) -> float:
    if what == "link":
        print("cut", flush=True)
        time.sleep(0.1)
    else:
        from bench.remote_hosts import list_children

        children = list_children(crew._pid)
        os.kill(crew._pid if what == "helper" else children[-1], signal.SIGKILL)
    return time.monotonic()


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "job":
        Path(os.environ["FUELLINE_BENCH_HASH"]).write_text(train())
    else:
        measure = {"line": measure_line, "failure": measure_failure}[sys.argv[1]]
        print(json.dumps(measure(**json.loads(sys.argv[2]))), flush=True)
