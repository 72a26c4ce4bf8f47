"""The second epoch on a slow mount with the cache, against the same pictures on the local disk.

The mount is the zoo's: FUSE, every read of a file takes 5 ms more; names and times are kept for as
long as NFS keeps them at least. Local and cached runs take turns; the first epoch of each starts
the workers and the observer and, the first time, fills the cache, so the second one is compared. An
epoch outlasts what is kept. The cached run asks the mount for size and times at every opening. One
worker, so that the mount's server, on a network another machine's, has a core: two workers on two
cores would pay for its work. Needs root and FUSE. About 9 minutes.

    python -m bench.cache_epoch
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import results
from bench.zoo.faults.mounts import SlowMount
from bench.zoo.faults.processes import REPOSITORY
from bench.zoo.job import my_turn
from bench.zoo.record import FUELLINE

PICTURES = 1500
WORKERS = 1
ROUNDS = int(os.environ.get("CACHE_ROUNDS", "9"))
READ_MS = 5.0
ATTRIBUTES_S = 3.0
BAR = 0.90
WAYS = {
    "local": "local disk",
    "recorded": "local disk, recorded",
    "slow": "slow mount",
    "cached": "slow mount, cached and recorded",
}


def main() -> dict[str, Any]:
    """The figures and whether they meet the bar."""
    fault = SlowMount(read_ms=READ_MS, attributes_s=ATTRIBUTES_S)
    missing = fault.missing()
    if missing:
        raise SystemExit(f"needs {missing}")
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    with my_turn(), tempfile.TemporaryDirectory(prefix="fuelline-bench-") as name:
        data, cache = Path(name, "data"), Path(name, "cache")
        maker = [sys.executable, str(REPOSITORY / "examples" / "make_data.py"), "images"]
        subprocess.run([*maker, str(data), "--count", str(PICTURES)], check=True)
        time.sleep(2.5)  # a file that changed a moment ago is not cached
        with fault.plant(data) as planted:
            rates["slow"].append(_second_epoch([sys.executable], planted.data))
            for _ in range(ROUNDS):
                shutil.rmtree(f"{name}/run", ignore_errors=True)
                rates["local"].append(_second_epoch([sys.executable], data))
                run = [*FUELLINE, "run", "--quiet", "--run-dir", f"{name}/run"]
                plain = [*run, "--", sys.executable]
                rates["recorded"].append(_second_epoch(plain, data))
                shutil.rmtree(f"{name}/run")
                run += ["--cache", str(cache), "--cache-size", "1G"]
                run += ["--cache-from", str(planted.data), "--", sys.executable]
                rates["cached"].append(_second_epoch(run, planted.data))
    pairs = zip(rates["cached"], rates["local"], strict=True)
    figures: dict[str, Any] = {way: statistics.median(each) for way, each in rates.items()}
    figures["share"] = statistics.median(cached / local for cached, local in pairs)
    figures["passed"] = figures["share"] >= BAR
    results.write_section("cache_epoch", markdown(figures))
    return figures


def _second_epoch(python: list[str], folder: Path) -> float:
    command = [*python, "-m", "bench.cache_job", str(folder), "2", str(WORKERS)]
    env = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"}
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)[1])


def markdown(figures: dict[str, Any]) -> str:
    """The section of the results page."""
    rows = "\n".join(f"| {words} | {figures[way]:.0f} | |" for way, words in WAYS.items())
    return f"""## Second epoch through the cache

`python -m bench.cache_epoch`, {results.machine()}. {PICTURES:,} JPEGs of 500x375
decoded by {WORKERS} worker; a FUSE mount whose reads take {READ_MS:.0f} ms more, attributes kept
for {ATTRIBUTES_S:.0f} s. Medians of {ROUNDS} rounds in turn, second epochs. The mount's server
runs on the same two cores: with two workers that keep both busy, and nothing kept, its share made
it 63 % of local speed.

| where | images/s | bar |
| --- | --- | --- |
{rows}
| cached against local | {100 * figures["share"]:.0f} % | 90 % |"""


if __name__ == "__main__":
    measured = main()
    print(measured)
    sys.exit(0 if measured["passed"] else 1)
