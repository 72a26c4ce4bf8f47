"""The second epoch on a slow mount with the cache, against the same pictures on the local disk.

The mount is the zoo's: FUSE, every read of a file takes 5 ms more; names and times are kept for as
long as NFS keeps them at least, and an epoch outlasts that. One recorded job reads both folders in
turns, a batch from each, since the machine's speed changes by more than the cache costs from one
job to the next. The first epoch fills the cache, the second one is compared. The cached reads ask
the mount for size and times at every opening; its server, on a network another machine's, has the
other core. Needs root and FUSE. About 5 minutes.

    python -m bench.cache_epoch
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import results
from bench.cache_job import BATCH
from bench.zoo.faults.mounts import SlowMount
from bench.zoo.faults.processes import REPOSITORY
from bench.zoo.job import my_turn
from bench.zoo.record import FUELLINE

PICTURES = 1500
JOBS = int(os.environ.get("CACHE_JOBS", "3"))
READ_MS = 5.0
ATTRIBUTES_S = 3.0
BAR = 0.90


def main() -> dict[str, Any]:
    """The figures and whether they meet the bar."""
    fault = SlowMount(read_ms=READ_MS, attributes_s=ATTRIBUTES_S)
    missing = fault.missing()
    if missing:
        raise SystemExit(f"needs {missing}")
    with my_turn(), tempfile.TemporaryDirectory(prefix="fuelline-bench-") as name:
        data = Path(name, "data")
        maker = [sys.executable, str(REPOSITORY / "examples" / "make_data.py"), "images"]
        subprocess.run([*maker, str(data), "--count", str(PICTURES)], check=True)
        time.sleep(2.5)  # a file that changed a moment ago is not cached
        with fault.plant(data) as planted:
            plain = _turns([sys.executable], data, planted.data)
            cached = []
            for number in range(JOBS):
                run = [*FUELLINE, "run", "--quiet", "--run-dir", f"{name}/run{number}"]
                run += ["--cache", f"{name}/cache{number}", "--cache-size", "1G"]
                run += ["--cache-from", str(planted.data), "--", sys.executable]
                cached.append(_turns(run, data, planted.data))
    turns = [turn for each in cached for turn in each]
    shares = [_share(each) for each in cached]
    figures: dict[str, Any] = {
        "local": BATCH / statistics.median(local for local, _ in turns),
        "slow": BATCH / statistics.median(slow for _, slow in plain),
        "cached": BATCH / statistics.median(slow for _, slow in turns),
        "share": _share(turns),
        "lowest": min(shares),
        "highest": max(shares),
    }
    figures["passed"] = figures["share"] >= BAR
    results.write_section("cache_epoch", markdown(figures))
    return figures


def _share(turns: list[tuple[float, float]]) -> float:
    """Speed from the mount over local speed, the median of the turns."""
    return statistics.median(local / slow for local, slow in turns)


def _turns(python: list[str], *folders: Path) -> list[tuple[float, float]]:
    command = [*python, "-m", "bench.cache_job", *(str(folder) for folder in folders)]
    env = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"}
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return [(local, slow) for local, slow in json.loads(done.stdout)]


def markdown(figures: dict[str, Any]) -> str:
    """The section of the results page."""
    return f"""## Second epoch through the cache

`python -m bench.cache_epoch`, {results.machine()}. {PICTURES:,} JPEGs of 500x375,
decoded in batches of {BATCH} from the local disk and from a FUSE mount whose reads take
{READ_MS:.0f} ms more (attributes kept for {ATTRIBUTES_S:.0f} s) in turns within one recorded job;
{JOBS} jobs, second epochs, medians of the turns.

| where | images/s | bar |
| --- | --- | --- |
| local disk | {figures["local"]:.0f} | |
| slow mount | {figures["slow"]:.0f} | |
| slow mount, cached | {figures["cached"]:.0f} | |
| cached against local | {100 * figures["share"]:.1f} % ({100 * figures["lowest"]:.1f} to \
{100 * figures["highest"]:.1f} by job) | 90 % |"""


if __name__ == "__main__":
    measured = main()
    print(measured)
    sys.exit(0 if measured["passed"] else 1)
