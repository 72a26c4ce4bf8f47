"""The longest recording that one process can leave: a spool at its cap, 190 s of 12,000 steps/s.

A real job of tiny steps is recorded for 15 s, its middle is repeated to 190 s (see `stretch.py`),
and what would not have fitted under the cap is cut and counted, as the recorder does. Measured are
the real commands as a whole: wall time, and the peak memory of the process and its children.

    python -m bench.long_spool [RUNS]
"""

from __future__ import annotations

import errno
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench import results
from bench.hour import folder_bytes
from bench.stretch import RECORD, stretch
from bench.zoo.record import FUELLINE
from fuelline.schema import wire
from fuelline.schema.run.recording import SPOOL_DIR

OUT = Path(__file__).parent / "out" / "long_spool"
SECONDS, RECORDED_S = 190.0, 15
BARS = {"seconds": 10.0, "peak_rss_bytes": 500e6}
RUNS = 5
JOB = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Tiny(Dataset):
    sample = torch.zeros(4)
    def __len__(self): return 100_000
    def __getitem__(self, index): return self.sample

torch.set_num_threads(1)
weights = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=0.1)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for sample in DataLoader(Tiny(), batch_size=None):
        (weights * sample).sum().backward()
        optimizer.step()
        if time.monotonic() > end:
            break
"""
ASK = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
took = time.perf_counter() - start
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({
    "seconds": took, "cpu_seconds": usage.ru_utime + usage.ru_stime,
    "peak_rss_bytes": usage.ru_maxrss * 1024,
}))
"""
"""In a process of its own: a child begins with the peak of the process that forks it."""
COMMANDS = {
    "diagnose --json": ("diagnose", "RUN", "--json"),
    "whatif": ("whatif", "RUN"),
    "compare with itself": ("compare", "RUN", "RUN"),
    "export --perfetto": ("export", "RUN", "--perfetto", "TRACE"),
    "watch": ("watch", "RUN", "--once"),
}


def main(runs: int = RUNS) -> dict[str, Any]:
    """The figures and whether they meet their bars."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    raw, run_dir = OUT / "raw", OUT / "run"
    record(OUT / "short")
    stretch(OUT / "short", raw, max(SECONDS, seconds_to_fill(OUT / "short")))
    figures: dict[str, Any] = {"records": sum(map(cap, (raw / SPOOL_DIR).iterdir()))}
    figures["raw_bytes"] = folder_bytes(raw)
    first, again = [], []
    for _ in range(runs):
        shutil.rmtree(run_dir, ignore_errors=True)
        shutil.copytree(raw, run_dir)
        first.append(ask("diagnose", "RUN"))
        again.append(ask("diagnose", "RUN"))
    figures["bytes"] = folder_bytes(run_dir)
    figures["diagnose, first"] = middle(first)
    figures["diagnose, again"] = middle(again)
    figures |= {name: ask(*command) for name, command in COMMANDS.items()}
    figures["passed"] = all(
        figures[name][figure] <= bar
        for name in ("diagnose, first", "diagnose, again")
        for figure, bar in BARS.items()
    )
    results.write_section("long_spool", section(figures, runs))
    shutil.rmtree(OUT)
    return figures


def record(run_dir: Path) -> None:
    """A real job of tiny steps, left raw."""
    job = OUT / "job.py"
    job.write_text(JOB)
    command = [*FUELLINE, "run", "--quiet", "--run-dir", str(run_dir), "--"]
    subprocess.run(
        [*command, sys.executable, str(job), str(RECORDED_S)], check=True, capture_output=True
    )


def seconds_to_fill(short: Path) -> float:
    """How long the job would have to run for its spool to reach the cap; more on a busy machine."""
    return RECORDED_S * 1.5 * wire.CAP_BYTES / folder_bytes(short / SPOOL_DIR)


def cap(spool: Path) -> int:
    """Cut a spool where the recorder would have stopped; how many records are left."""
    raw = bytearray(spool.read_bytes())
    beyond = bytes(raw[wire.CAP_BYTES :])
    del raw[wire.CAP_BYTES :]
    if beyond:
        trainer, _, faults, live, _, written = wire.NOTES.unpack_from(raw, wire.NOTES_OFFSET)
        notes = trainer, count(beyond), faults, live, errno.EFBIG, written
        wire.NOTES.pack_into(raw, wire.NOTES_OFFSET, *notes)
    spool.write_bytes(raw)
    return count(bytes(raw[wire.HEADER_BYTES :]))


def count(body: bytes) -> int:
    return int((np.frombuffer(body, RECORD)["kind"] != 0).sum())


def ask(*command: str) -> dict[str, float]:
    """What a command costs; RUN and TRACE stand for the run's folder and a new file."""
    paths = {"RUN": str(OUT / "run"), "TRACE": str(OUT / "trace.json")}
    words = [*FUELLINE, *(paths.get(word, word) for word in command)]
    told = subprocess.run(
        [sys.executable, "-c", ASK, *words], check=True, capture_output=True, text=True
    )
    figures: dict[str, float] = json.loads(told.stdout)
    return figures


def middle(asked: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure."""
    return {name: statistics.median(each[name] for each in asked) for name in asked[0]}


def section(figures: dict[str, Any], runs: int) -> str:
    """The section of the results page."""
    rows = "\n".join(
        f"| {name} | {each['seconds']:.1f} s | {each['cpu_seconds']:.1f} s "
        f"| {each['peak_rss_bytes'] / 1e6:.0f} MB |"
        for name, each in figures.items()
        if isinstance(each, dict)
    )
    return (
        f"## A spool at its cap\n\n`python -m bench.long_spool`, {results.machine()}. "
        f"{figures['records']:,} records of tiny steps, {figures['raw_bytes'] / 1e6:.0f} MB raw, "
        f"{figures['bytes'] / 1e6:.1f} MB as a run of which excerpts are kept. Medians of {runs} "
        "diagnoses, at most 10 s and 500 MB each; the other commands once.\n\n"
        f"| command | time | processor time | peak memory |\n| --- | --- | --- | --- |\n{rows}"
    )


if __name__ == "__main__":
    measured = main(*(int(word) for word in sys.argv[1:]))
    print(json.dumps(measured, indent=1))
    sys.exit(0 if measured["passed"] else 1)
