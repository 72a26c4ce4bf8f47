"""Merge and diagnosis of 64 ranks on 8 hosts over an hour, synthesised from a real run of two.

Two gloo ranks are recorded for half a minute, stretched to an hour, and copied under other pids and
ranks; every host compacts its own part, as `fuelline run --node-rank` does at its end. Measured is
what the reader then pays, in a process of its own: time, CPU time and peak memory.

    python -m bench.many_ranks
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench import results
from bench.stretch import RECORD, stretch
from fuelline.ingest import compact_recording
from fuelline.schema import wire
from fuelline.schema.run.recording import PART_PREFIX, SPOOL_DIR

OUT = Path(__file__).parent / "out" / "ranks"
JOB = Path(__file__).with_name("ranked_job.py")
HOSTS, RANKS_A_HOST = 8, 8
SECONDS = 3600
BARS = {"seconds": 10.0, "peak_rss_bytes": 500e6}
ASK = """
import json, resource, sys, time
from pathlib import Path
start = time.perf_counter()
from fuelline.cli.frugal import save_memory, use_few_threads
save_memory()
use_few_threads()
from fuelline import pipeline
told = pipeline.diagnose_run(Path(sys.argv[1]))
took = time.perf_counter() - start
usage = resource.getrusage(resource.RUSAGE_SELF)
# Not ru_maxrss, which begins with the peak of the process that started this one.
status = Path("/proc/self/status").read_text()
peak_kb = int(status.partition("VmHWM:")[2].split()[0])
print(json.dumps({
    "seconds": took, "cpu_seconds": usage.ru_utime + usage.ru_stime,
    "peak_rss_bytes": peak_kb * 1024, "ranks": told.collectives.ranks,
    "steps": told.steps.count, "culprits": [late.rank for late in told.collectives.culprits],
}))
"""


def main() -> dict[str, Any]:
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    record(OUT / "short")
    stretch(OUT / "short", OUT / "long", SECONDS)
    run_dir = OUT / "run"
    for host in range(HOSTS):
        part = run_dir / f"{PART_PREFIX}{host:04d}"
        populate(OUT / "long", part, host)
        compact_recording(part)
    figures = ask(run_dir)
    figures["size_bytes"] = sum(file.stat().st_size for file in run_dir.rglob("*.parquet"))
    figures["passed"] = all(figures[name] <= bar for name, bar in BARS.items())
    results.write_section("many_ranks", section(figures))
    shutil.rmtree(OUT)
    return figures


def record(run_dir: Path) -> None:
    """Two ranks with ten steps a second, the second one late."""
    job = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, "-m", "fuelline", "run", "--quiet", "--run-dir", str(run_dir)]
    subprocess.run([*command, *job, str(JOB)], check=True, capture_output=True)


def populate(long: Path, part: Path, host: int) -> None:
    """One host's raw recording: the spools of two ranks, four times under other names."""
    shutil.copytree(long, part, ignore=shutil.ignore_patterns(SPOOL_DIR))
    (part / SPOOL_DIR).mkdir()
    spools = sorted((long / SPOOL_DIR).glob(f"*{wire.SUFFIX}"), key=rank_of)
    ranked = [path for path in spools if rank_of(path) >= 0]
    for place in range(RANKS_A_HOST):
        rank = host * RANKS_A_HOST + place
        # Rank 1 stays the only late one; all others are copies of the one that waits for it.
        source = ranked[1 if rank == 1 else 0]
        pid = int(source.name.partition("-")[0]) + place * 1000
        (part / SPOOL_DIR / f"{pid}-1{wire.SUFFIX}").write_bytes(rename(source, pid, rank))


def rank_of(path: Path) -> int:
    """Which rank wrote a spool; -1 if none did."""
    told = records(path.read_bytes())
    found = told[told["kind"] == wire.Kind.RANK]
    return int(found["a"][0]) if len(found) else -1


def records(raw: bytes) -> np.ndarray[Any, Any]:
    return np.frombuffer(raw, RECORD, offset=wire.HEADER_BYTES)


def rename(source: Path, pid: int, rank: int) -> bytes:
    """The same spool as another process and rank of 64 would have written it."""
    raw = bytearray(source.read_bytes())
    old = wire.HEADER.unpack_from(raw)
    wire.HEADER.pack_into(raw, 0, *old[:2], pid, *old[3:])
    told = np.frombuffer(raw, RECORD, offset=wire.HEADER_BYTES)
    told["tid"][told["tid"] == old[2]] = pid
    is_rank = told["kind"] == wire.Kind.RANK
    told["a"][is_rank], told["b"][is_rank] = rank, HOSTS * RANKS_A_HOST
    meets = np.isin(told["kind"], [wire.Kind.COLLECTIVE, wire.Kind.COLLECTIVE_WAIT])
    told["e"][meets] = HOSTS * RANKS_A_HOST
    for op in np.unique(told["a"][meets]):
        same = meets & (told["a"] == op)
        told["d"][same] = np.arange(same.sum())  # stretching has repeated the numbers
    return bytes(raw)


def ask(run_dir: Path) -> dict[str, Any]:
    """What a diagnosis costs in a fresh process."""
    told = subprocess.run(
        [sys.executable, "-c", ASK, str(run_dir)], check=True, capture_output=True, text=True
    )
    figures: dict[str, Any] = json.loads(told.stdout)
    return figures


def section(figures: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {name} | {value:.4g} | {BARS.get(name, '')} |"
        if isinstance(value, float)
        else f"| {name} | {value} | {BARS.get(name, '')} |"
        for name, value in figures.items()
    )
    return (
        f"## 64 ranks, one hour\n\n`python -m bench.many_ranks`, {results.machine()}. Eight hosts "
        "of eight ranks, synthesised from a real run of two.\n\n"
        f"| figure | measured | at most |\n|---|---|---|\n{rows}"
    )


if __name__ == "__main__":
    print(main())
