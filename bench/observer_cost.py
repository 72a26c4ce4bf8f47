"""What the observer costs: one trainer and eight loader workers, watched for three minutes.

Prints the observer's own share of one core, py-spy's share, resident memory and journal size.
The bars: at most 1 % of one core together on average, at most 80 MB. The start weighs
most in a short job, so the first minute is stated apart.

    python bench/observer_cost.py [--seconds 180]
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from fuelline.record.launch import launch
from fuelline.schema.run.journal import decode_frames
from fuelline.schema.run.samples import JOURNAL_NAME, HostSample, Row, StackSample, ThreadState

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
    model = torch.nn.Linear(1000, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for batch in DataLoader(Samples(), batch_size=16, num_workers=int(sys.argv[2])):
        time.sleep(0.02)
        model(batch).sum().backward()
        optimizer.step()
        if time.monotonic() > end:
            break
"""


def main(seconds: float = 180.0) -> dict[str, float]:
    """Record the job as `fuelline run` does; gives the figures."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "job.py"
        script.write_text(JOB)
        run_dir = Path(folder) / "run"
        command = [sys.executable, "-W", "ignore", str(script), str(seconds), str(WORKERS)]
        start = time.monotonic()
        outcome = launch(command, run_dir)
        wall_s = time.monotonic() - start
        if outcome.returncode or outcome.problem:
            raise RuntimeError(f"the job was not recorded: {outcome}")
        return _measure((run_dir / JOURNAL_NAME).read_bytes(), wall_s)


def _measure(journal: bytes, wall_s: float) -> dict[str, float]:
    """The observer weighs itself; its last sample is taken just before it leaves."""
    rows = decode_frames(journal).rows
    hosts = [row.values for row in rows if isinstance(row, HostSample)]
    last = {name: value for values in hosts for name, value in values.items()}
    own_s, stacks_s = last["observer.cpu_ns"] / 1e9, last["observer.stacks_cpu_ns"] / 1e9
    states = [row for row in rows if isinstance(row, ThreadState)]
    return {
        "wall_s": wall_s,
        "observer_core_share": own_s / wall_s,
        "py_spy_core_share": stacks_s / wall_s,
        "together_core_share": (own_s + stacks_s) / wall_s,
        "first_minute_core_share": _first_minute(rows),
        "startup_cpu_s": next(
            values["observer.cpu_ns"] / 1e9 for values in hosts if "observer.cpu_ns" in values
        ),
        "peak_rss_bytes": last["observer.peak_rss_bytes"],
        "journal_bytes_per_hour": len(journal) / wall_s * 3600,
        "thread_samples_per_s": sum(row.count for row in states) / wall_s,
        "stack_samples": sum(row.count for row in rows if isinstance(row, StackSample)),
        "sampling_interval_ms": last["observer.interval_ns"] / 1e6,
        "looks_at_others": last["others.looks"],
        "load_average": os.getloadavg()[0],
    }


def _first_minute(rows: list[Row]) -> float:
    """The share of a core until a minute after the first sample, start included."""
    hosts = [row for row in rows if isinstance(row, HostSample)]
    end_ns = hosts[0].at_ns + 60_000_000_000
    last = {
        name: value for row in hosts if row.at_ns <= end_ns for name, value in row.values.items()
    }
    return (last["observer.cpu_ns"] + last["observer.stacks_cpu_ns"]) / 60e9


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0)
    for name, value in main(parser.parse_args().seconds).items():
        print(f"{name:24} {value:12.5g}")
