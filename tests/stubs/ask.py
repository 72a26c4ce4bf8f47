"""Asks all devices a few times, as the observer does, and prints the rows: for a subprocess.

    python -m tests.stubs.ask PID [LOST_FILE]

PID is taken for the job's process. If a file is named, it is made between two rounds, which tells
the stub to lose a device.
"""

import sys
import time
from pathlib import Path

import msgspec

from fuelline.record.samplers.devices.sampler import Devices


def main(pid: int, lost_file: Path | None) -> None:
    devices = Devices()
    devices.job_pids = frozenset({pid})
    devices.open(time.monotonic_ns())
    for round_number in range(3):
        now_ns = time.monotonic_ns()
        for read in (devices.read_fast, devices.read_second, devices.read_slow):
            read(now_ns)
        devices.look_at_processes(now_ns)
        if lost_file is not None and round_number == 1:
            lost_file.touch()
        time.sleep(0.12)  # GPM samples must lie 100 ms apart
    devices.finish(time.monotonic_ns())
    sys.stdout.buffer.write(msgspec.msgpack.encode(devices.drain()))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
