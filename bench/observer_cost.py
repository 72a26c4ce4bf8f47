"""What the observer costs: one trainer and eight loader workers, watched for a minute.

Prints the observer's own share of one core, py-spy's share, resident memory and journal size.
The bars (issue 2): at most 1 % of one core together on average, at most 80 MB.

    python bench/observer_cost.py [--seconds 60]
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fuelline.schema.journal import decode_frames
from fuelline.schema.samples import JOURNAL_NAME, HostSample, StackSample, ThreadState

WORKERS = 8

JOB = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 10**9
    def __getitem__(self, index):
        sum(range(3000))
        time.sleep(0.002)
        return torch.zeros(1000)

if __name__ == "__main__":
    end = time.monotonic() + float(sys.argv[1])
    for batch in DataLoader(Samples(), batch_size=16, num_workers=int(sys.argv[2])):
        time.sleep(0.02)
        if time.monotonic() > end:
            break
"""


def main(seconds: float = 60.0) -> dict[str, float]:
    """Run the job and the observer; gives the figures."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder)
        script = run_dir / "job.py"
        script.write_text(JOB)
        job = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(script), str(seconds), str(WORKERS)]
        )
        start = time.monotonic()
        command = [sys.executable, "-m", "fuelline.record.observer", "--run-dir", folder]
        observer = subprocess.Popen([*command, "--root-pid", str(job.pid)])
        job.wait()
        _, _, usage = os.wait4(observer.pid, 0)
        observer.returncode = 0
        return _measure(run_dir / JOURNAL_NAME, time.monotonic() - start, usage)


def _measure(journal: Path, wall_s: float, usage: resource.struct_rusage) -> dict[str, float]:
    content = journal.read_bytes()
    rows = decode_frames(content).rows
    host = {
        name: value
        for row in rows
        if isinstance(row, HostSample)
        for name, value in row.values.items()
    }
    cpu_s = usage.ru_utime + usage.ru_stime
    stacks_s = host.get("observer.stacks_cpu_ns", 0.0) / 1e9
    return {
        "wall_s": wall_s,
        "observer_core_share": (cpu_s - stacks_s) / wall_s,
        "py_spy_core_share": stacks_s / wall_s,
        "together_core_share": cpu_s / wall_s,
        "startup_cpu_s": next(
            row.values["observer.cpu_ns"] / 1e9 for row in rows if isinstance(row, HostSample)
        ),
        "rss_bytes": usage.ru_maxrss * 1024,
        "journal_bytes_per_hour": len(content) / wall_s * 3600,
        "thread_samples_per_s": sum(r.count for r in rows if isinstance(r, ThreadState)) / wall_s,
        "stack_samples": sum(r.count for r in rows if isinstance(r, StackSample)),
        "sampling_interval_ms": host.get("observer.interval_ns", 0.0) / 1e6,
        "load_average": os.getloadavg()[0],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    for name, value in main(parser.parse_args().seconds).items():
        print(f"{name:24} {value:12.5g}")
