"""Reading Kineto traces against HTA and a plain scan in C: CPU, memory, growth, ranks side by side.

    python -m bench.trace_import [--source TRACE.json.gz] [--runs 3] [--sizes 0.25,0.5,1,2]
        [--peers "HTA 0.5.0,traceinsight 0.6.1"]

A real trace (216,000 events, 54 MB unpacked) is repeated with shifted times and ids: six times for
324 MB. Ours is measured from the start of Python to the ledger; HTA 0.5.0 (`HolisticTraceAnalysis`)
and 0.6.1 (`traceinsight`), each in a venv of its own under FUELLINE_BENCH_VENVS or bench/out, only
while they load; so is the part of ours that loads. The scan (`bench/traces/scan.c`) unpacks the
same file and passes over its text once. Runs are interleaved, medians are kept. Takes about 15
minutes, most of it HTA and making the traces.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from bench import results
from bench.traces.repeat import repeat

ROOT = Path(__file__).parent.parent
SOURCE = ROOT.parent / "shared/data/traces/kineto/hta/df_index_resolver/df_index_resolver.json.gz"
PEERS = {"HTA 0.5.0": "HolisticTraceAnalysis==0.5.0", "traceinsight 0.6.1": "traceinsight==0.6.1"}
COPY_BYTES = 53.7e6
BAR_CPU_RATIO = 15.0
BAR_SCANS = 3.0
BAR_RSS_BYTES = 250e6
BAR_LARGE_RSS_BYTES = 400e6
OUT = ROOT / "bench" / "out"
OURS, LOAD = "fuelline, to the diagnosis", "fuelline, loading"
SCAN = "plain scan in C, from the packed file"
SCAN_BYTES = 2e6
"""What it holds is its buffers."""


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=SOURCE)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--sizes", default="0.25,0.5,1,2", help="gigabytes")
    parser.add_argument("--peers", default=",".join(PEERS), help="those that are asked")
    options = parser.parse_args(argv if argv is not None else [])
    sizes = [float(size) for size in options.sizes.split(",") if size]
    with tempfile.TemporaryDirectory(prefix="fuelline-traces-") as name:
        folder = Path(name)
        figures = {**compare(folder, options), "growth": [], "ranks": None}
        note(figures)
        for size in sizes:
            figures["growth"].append(grow(folder, options.source, size))
            note(figures)
        figures["ranks"] = side_by_side(folder, options.source)
    note(figures)
    return figures


def note(figures: dict[str, Any]) -> None:
    """Write down what was measured so far; the section says what was not."""
    figures["passed"] = judge(figures)
    results.write_section("trace_import", section(figures))


def compare(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Ours, the peers and the plain scan on the same 324 MB, turn by turn."""
    path = folder / "t324.json.gz"
    size = repeat(options.source, path, 6)
    asked = [name for name in options.peers.split(",") if name]
    pythons = {name: peer_python(PEERS[name]) for name in asked}
    scanner = folder / "scan"
    code = ROOT / "bench" / "traces" / "scan.c"
    subprocess.run(["cc", "-O2", "-o", str(scanner), str(code), "-lz"], check=True)
    taken: dict[str, list[dict[str, Any]]] = {}
    for _ in range(options.runs):
        taken.setdefault(SCAN, []).append(scan(scanner, path))
        whole = ours(path)
        taken.setdefault(OURS, []).append(whole)
        taken.setdefault(LOAD, []).append({**whole, "cpu_s": whole["load_cpu_s"]})
        for name, python in pythons.items():
            script = ROOT / "bench" / "traces" / "hta_load.py"
            taken.setdefault(name, []).append(ask([str(python), str(script), str(path)]))
    medians = {
        name: {
            key: statistics.median(each[key] for each in each_run)
            for key in ("cpu_s", "peak_rss_bytes")
        }
        for name, each_run in taken.items()
    }
    return {"size_bytes": size, "readers": medians}


def scan(scanner: Path, path: Path) -> dict[str, Any]:
    """One pass of the scan: what its process took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([scanner, path], check=True, capture_output=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu_s": cpu_s, "peak_rss_bytes": SCAN_BYTES}


def grow(folder: Path, source: Path, gigabytes: float) -> dict[str, Any]:
    path = folder / "large.json.gz"
    size = repeat(source, path, max(1, round(gigabytes * 1e9 / COPY_BYTES)))
    taken = ours(path)
    path.unlink()
    keys = ("cpu_s", "peak_rss_bytes", "run_bytes")
    return {"size_bytes": size, **{key: taken[key] for key in keys}}


def side_by_side(folder: Path, source: Path) -> dict[str, Any]:
    """Eight ranks with one process a core, and one by one."""
    paths = []
    for rank in range(8):
        path = folder / f"rank{rank}.json.gz"
        repeat(source, path, 1, rank)
        paths.append(path)
    apart, alone = ours(*paths), ours(*paths, jobs=1)
    return {
        "wall_s": apart["wall_s"],
        "one_by_one_wall_s": alone["wall_s"],
        "peak_rss_bytes": apart["peak_rss_bytes"],
        "identical": apart["ledgers"] == alone["ledgers"],
    }


def ours(*paths: Path, jobs: int | None = None) -> dict[str, Any]:
    words = [sys.executable, "-m", "bench.traces.ours", *map(str, paths)]
    return ask([*words, "--jobs", str(jobs)] if jobs else words)


def ask(command: list[str]) -> dict[str, Any]:
    """The last line that a reader prints."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path} if "-m" in command else dict(os.environ)
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def peer_python(package: str) -> Path:
    """Python of a venv with one peer, made on first use."""
    kept = Path(os.environ.get("FUELLINE_BENCH_VENVS", OUT))
    folder = kept / f"venv-{package.partition('=')[0]}"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin" / "pip", "install", "-q", package], check=True)
        (folder / "ready").touch()
    return folder / "bin" / "python"


def judge(figures: dict[str, Any]) -> bool:
    readers = figures["readers"]
    load = readers[LOAD]["cpu_s"]
    ratio = readers["HTA 0.5.0"]["cpu_s"] / load if "HTA 0.5.0" in readers else 0.0
    largest = max((each["peak_rss_bytes"] for each in figures["growth"]), default=0)
    return bool(
        ratio >= BAR_CPU_RATIO
        and load <= BAR_SCANS * readers[SCAN]["cpu_s"]
        and readers[OURS]["peak_rss_bytes"] <= BAR_RSS_BYTES
        and largest <= BAR_LARGE_RSS_BYTES
        and figures["ranks"] is not None
        and figures["ranks"]["identical"]
    )


def section(figures: dict[str, Any]) -> str:
    base = figures["readers"][LOAD]["cpu_s"]
    readers = "\n".join(
        f"| {name} | {each['cpu_s']:.2f} | {each['cpu_s'] / base:.1f} | "
        f"{each['peak_rss_bytes'] / 1e6:.0f} |"
        for name, each in figures["readers"].items()
    )
    growth = "\n".join(
        f"| {each['size_bytes'] / 1e9:.2f} | {each['cpu_s']:.2f} | "
        f"{each['cpu_s'] / each['size_bytes'] * 1e9:.2f} | {each['peak_rss_bytes'] / 1e6:.0f} | "
        f"{each['run_bytes'] / 1e6:.1f} |"
        for each in figures["growth"]
    )
    growth = growth or "| not measured in this run | | | | |"
    load = os.getloadavg()[0]
    return f"""## Reading Kineto traces

`python -m bench.trace_import`, {results.machine()}, load {load:.1f} at the end. A real trace of
54 MB, repeated. Ours: from the start of Python, once until the tables are written and once to the
diagnosis with its ledger; HTA: loading only. Bars, for loading: {BAR_CPU_RATIO:.0f} times less CPU
than HTA 0.5.0, {BAR_SCANS:.0f} times that of the plain scan; {BAR_RSS_BYTES / 1e6:.0f} MB;
{BAR_LARGE_RSS_BYTES / 1e6:.0f} MB at 2 GB. Passed: {"yes" if figures["passed"] else "no"}.

| {figures["size_bytes"] / 1e6:.0f} MB | CPU s | of our loading | peak RSS MB |
| --- | --- | --- | --- |
{readers}

| GB | CPU s | CPU s a GB | peak RSS MB | run on disk MB |
| --- | --- | --- | --- | --- |
{growth}

{describe_ranks(figures["ranks"])}"""


def describe_ranks(ranks: dict[str, Any] | None) -> str:
    if ranks is None:
        return "Eight ranks side by side were not measured in this run."
    return f"""Eight ranks of 54 MB: {ranks["wall_s"]:.1f} s with one process a core,
{ranks["one_by_one_wall_s"]:.1f} s one by one, results
{"identical" if ranks["identical"] else "DIFFERENT"}, {ranks["peak_rss_bytes"] / 1e6:.0f} MB a
process at most."""


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:])["passed"] else 1)
