"""A thousand ranks of traces through Ray: `python -m bench import_ray`, beside a cluster.

Small Kineto traces are made up, imported by one process and by the cluster at RAY_ADDRESS (`auto`
if that is not set; `ray start --head` makes one). Bars: the same run, byte for byte but for its own
name and time; at most 500 MB for any of the cluster's workers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench import results

RANKS = 1000
STEPS, KERNELS = 4, 10
MOST_BYTES = 500e6


def main() -> dict[str, Any]:
    """Measure and write the section."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for rank in range(RANKS):
            (place / f"rank{rank}.json").write_text(json.dumps(_make_trace(rank)))
        with tempfile.TemporaryDirectory() as out:
            alone_s = _import(place, Path(out) / "alone", "--jobs", "1")
            peak = _Peak()
            address = os.environ.get("RAY_ADDRESS", "auto")
            ray_s = _import(place, Path(out) / "ray", "--ray", address)
            most = peak.end()
            is_same = _read(Path(out) / "alone") == _read(Path(out) / "ray")
    results.write_section("import_ray", _section(alone_s, ray_s, most, is_same=is_same))
    return {
        "alone_s": alone_s,
        "ray_s": ray_s,
        "worker_bytes": most,
        "is_same": is_same,
        "passed": is_same and 0 < most <= MOST_BYTES,
    }


def _section(alone_s: float, ray_s: float, most: int, *, is_same: bool) -> str:
    load = os.getloadavg()[0]
    return f"""## Ranks of traces through Ray

`python -m bench import_ray`, {results.machine()}, load {load:.0f} at the end. {RANKS} ranks of
made-up Kineto traces, {STEPS} steps of {KERNELS} kernels, on one machine.

| figure | measured | bar |
| --- | --- | --- |
| the same run as by one process, byte for byte | {"yes" if is_same else "no"} | yes |
| largest worker of the cluster, MB | {most / 1e6:.0f} | {MOST_BYTES / 1e6:.0f} |
| one process, s | {alone_s:.1f} | |
| through Ray, start included, s | {ray_s:.1f} | |"""


def _import(folder: Path, run: Path, *words: str) -> float:
    began_s = time.monotonic()
    command = [sys.executable, "-m", "fuelline", "import", str(folder), "-o", str(run)]
    environment = {**os.environ, "FUELLINE_HOME": str(run.with_name("home"))}
    subprocess.run([*command, "--no-diagnose", *words], check=True, env=environment)
    return time.monotonic() - began_s


class _Peak:
    """The largest that any worker of Ray on this machine becomes that imports."""

    def __init__(self) -> None:
        self._most = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def end(self) -> int:
        self._is_over.set()
        self._thread.join()
        return self._most

    def _watch(self) -> None:
        while not self._is_over.wait(0.2):
            for status in Path("/proc").glob("[0-9]*/status"):
                try:
                    if b"_read_elsewhere" not in status.with_name("cmdline").read_bytes():
                        continue
                    rows = dict(row.split(":", 1) for row in status.read_text().splitlines())
                    self._most = max(self._most, 1024 * int(rows["VmHWM"].split()[0]))
                except (OSError, KeyError):
                    continue  # it has ended


def _read(run: Path) -> dict[str, bytes]:
    """Every file; of the table of contents what is not its own name and time."""
    found = {path.name: path.read_bytes() for path in sorted(run.iterdir())}
    manifest = json.loads(found.pop("manifest.json"))
    for name in ("run_id", "started_wall_ns", "command"):
        manifest["run"].pop(name)
    found["manifest.json"] = json.dumps(manifest).encode()
    return found


def _make_trace(rank: int) -> dict[str, Any]:
    events: list[dict[str, Any]] = []
    at = 1.7e15
    for step in range(STEPS):
        common = {"ph": "X", "pid": 1, "tid": 1}
        mark = {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 10000}
        events.append({**common, **mark})
        for kernel in range(KERNELS):
            ids = {"correlation": step * KERNELS + kernel + 1}
            call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 10, "args": ids}
            work = {"cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "dur": 200 + rank % 50}
            work["args"] = {**ids, "device": 0, "stream": 7}
            events += [
                {**common, **call, "ts": at + 900 * kernel},
                {**common, **work, "ts": at + 900 * kernel + 50},
            ]
        at += 10000
    device = {"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 80 << 30, "numSms": 132}
    world = {"backend": "nccl", "rank": rank, "world_size": RANKS}
    return {
        "schemaVersion": 1,
        "distributedInfo": world,
        "deviceProperties": [device],
        "traceEvents": events,
    }


if __name__ == "__main__":
    print(main())
