"""How long does `fuelline fleet` take over many runs? `python -m bench fleet_size`, 5 minutes.

Rows are made up, of 300 jobs on 60 hosts over a year, and written as `run --store` writes them, one
file a run, into a folder on the local disk. Bars: 1,000 runs in 2 s; 100,000 in 20 s and 1 GB.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import results
from fuelline.fleet.shelf import encode_row, place_of, put
from fuelline.schema.diagnosis.fleet import FleetCause, FleetGauge, FleetRun

SIZES = {1_000: 2.0, 100_000: 20.0}
MOST_BYTES = 1e9
_YEAR_S = 365 * 86400
_CAUSES = ("PR201", "PR206", "IO101", "CP401", "SY501", "HO302")


def main() -> dict[str, Any]:
    """Measure and write the section."""
    found = [_measure(size, bar_s) for size, bar_s in SIZES.items()]
    rows = "\n".join(
        f"| {each['runs']:,} | {each['wall_s']:.2f} | {each['cpu_s']:.2f} | {bar_s:g} | "
        f"{each['rss_bytes'] / 1e6:.0f} | {each['stored_bytes'] / 1e6:.0f} |"
        for each, bar_s in zip(found, SIZES.values(), strict=True)
    )
    load = os.getloadavg()[0]
    results.write_section(
        "fleet_size",
        f"""## Many runs

`python -m bench fleet_size`, {results.machine()}, load {load:.1f} at the end. Rows of 300 jobs on
60 hosts, made up, one file each as `run --store` leaves them; `fuelline fleet FOLDER --json`, the
command as a whole.

| runs | wall, s | CPU, s | at most, s | peak RSS, MB | store, MB |
| --- | --- | --- | --- | --- | --- |
{rows}
""",
    )
    return {"sizes": found, "passed": all(each["passed"] for each in found)}


def _measure(size: int, bar_s: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        stored = _fill(folder, size)
        began = time.monotonic()
        command = [sys.executable, "-m", "fuelline", "fleet", folder, "--json"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = status
        wall_s = time.monotonic() - began
    rss_bytes = usage.ru_maxrss * 1024
    return {
        "runs": size,
        "wall_s": wall_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "rss_bytes": rss_bytes,
        "stored_bytes": stored,
        "passed": status == 0 and wall_s <= bar_s and rss_bytes <= MOST_BYTES,
    }


def _fill(folder: str, size: int) -> int:
    """Rows that differ in what rows differ in; the bytes written."""
    chance, written, now_s = random.Random(7), 0, time.time_ns() / 1e9
    for number in range(size):
        run = _make_run(chance, number, now_s)
        content = encode_row(run)
        written += len(content)
        put(folder, place_of(run), content)
    assert len(list(Path(folder).glob("*/*.parquet"))) == size
    return written


def _make_run(chance: random.Random, number: int, now_s: float) -> FleetRun:
    job, host = chance.randrange(300), chance.randrange(60)
    seconds = chance.lognormvariate(8, 1.5)
    causes = [
        FleetCause(code=code, title=f"cause {code}", lost_seconds=seconds * chance.random() / 4)
        for code in chance.sample(_CAUSES, 3)
    ]
    return FleetRun(
        run_id=f"20260101-000000-job{job}-{number}",
        job=f"job{job}",
        user=f"user{job % 40}",
        host=f"node{host}",
        batch_id=str(number),
        chip=("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")[job % 2],
        devices=1 << (job % 4),
        started_s=now_s - chance.random() * _YEAR_S,
        seconds=seconds,
        exit_code=0,
        code=causes[0].code,
        title=causes[0].title,
        causes=causes,
        samples_per_s=1000 * chance.lognormvariate(0, 0.05),
        advice="DataLoader(..., num_workers=8)",
        gain=1 + chance.random(),
        gauges=[FleetGauge(kind="read latency", place="/data", value=chance.lognormvariate(-6, 1))],
    )


if __name__ == "__main__":
    print(main())
