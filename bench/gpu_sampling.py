"""What asking 8 GPUs ten times a second costs, with the real bindings and a stub of the driver.

Starts a process whose NVIDIA library is the stub of the tests, lets the observer's device sampler
work there with the journal as in a run, and weighs that process without its start. The stub does
what a driver does in no time at all: this is the price of our own code and of the bindings. On a
real machine the driver's calls come on top, and the sampler asks less often when they are dear.
The bar: at most 1 % of one core.

    python -m bench.gpu_sampling [--seconds 20]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.stubs import nvml

from fuelline.record.observer import JournalWriter
from fuelline.record.samplers.devices.sampler import Devices
from fuelline.schema.run.samples import DeviceSample

GPUS = 8
WARM_UP_S = 2.0


def main(seconds: float = 20.0) -> dict[str, float]:
    """Figures of a process of its own."""
    if nvml.GCC is None:
        raise RuntimeError("gcc is needed to build the stub of the driver's library")
    with tempfile.TemporaryDirectory() as folder:
        fake = {"gpus": GPUS, "throttled": 3, "processes": Path(folder) / "processes"}
        environment = nvml.environment(nvml.build(Path(folder)), **fake)
        command = [sys.executable, "-m", "bench.gpu_sampling", "--inside", folder]
        done = subprocess.run(
            [*command, "--seconds", str(seconds)],
            env=environment,
            stdout=subprocess.PIPE,
            check=True,
        )
    return dict(json.loads(done.stdout))


def measure(folder: Path, seconds: float) -> dict[str, float]:
    """Sample, write the journal once a second, and weigh this process after it has started."""
    devices, journal = Devices(), JournalWriter(folder / "journal")
    listed = "".join(f"{index} {os.getpid()}\n" for index in range(GPUS))
    (folder / "processes").write_text(listed)
    devices.job_pids = frozenset({os.getpid()})
    fast, costs_ns = devices.tasks[0], list[int]()
    read = fast.action

    def weigh(now_ns: int) -> None:
        start_ns = time.thread_time_ns()
        read(now_ns)
        costs_ns.append(time.thread_time_ns() - start_ns)

    fast.action = weigh
    devices.start()
    time.sleep(WARM_UP_S)
    if sum(isinstance(row, DeviceSample) for row in devices.drain()) < GPUS:
        raise RuntimeError("the stub was not asked")
    costs_ns.clear()
    start_cpu_s, start_s = time.process_time(), time.monotonic()
    rows = 0
    while time.monotonic() - start_s < seconds:
        time.sleep(1.0)
        batch = devices.drain()
        rows += len(batch)
        journal.add(batch)
        journal.flush()
    cpu_s, wall_s = time.process_time() - start_cpu_s, time.monotonic() - start_s
    achieved_s = wall_s / len(costs_ns)
    devices.stop()
    return {
        "wall_s": wall_s,
        "core_share": cpu_s / wall_s,
        "interval_ms": achieved_s * 1e3,
        "us_per_device_and_turn": sum(costs_ns) / len(costs_ns) / GPUS / 1e3,
        "rows_per_s": rows / wall_s,
        "journal_bytes_per_hour": (folder / "journal").stat().st_size / wall_s * 3600,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--inside", type=Path)
    options = parser.parse_args()
    if options.inside is not None:
        print(json.dumps(measure(options.inside, options.seconds)))
    else:
        for name, value in main(options.seconds).items():
            print(f"{name:24} {value:12.5g}")
