"""The traces of many ranks: time, memory and growth of `fuelline import` and of its diagnosis.

    python -m bench.thousand_traces [--ranks 1000] [--steps 50,200]

Each rank is a real trace of 54 MB (2,020 collectives) under a rank and a clock of its own; one in
eight arrives late. The text of a rank is packed once for each of a few clocks and written as
members of one gzip file behind a header that names the rank, so that a thousand of them take 4 GB
of disk. Measured in processes of their own: the import of all files, and the diagnosis, which
matches collectives over all ranks: the merge.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import results
from bench.trace_import import ROOT, SOURCE

_TIME = re.compile(rb'("ts": )(\d+)')
_START = b'"traceEvents": ['
_LATE_US = (0, 20, 40, 60, 10, 30, 50, 3000)
"""By rank modulo their number: what its clock, or its host, is behind by."""
BARS = {"peak_rss_bytes": 500e6, "merge_s": 60.0}
ENOUGH = 1000
_LINEAR = 1.25
"""A rank among all may cost this many times what it costs among the fewest."""
_ASK = """
import json, resource, sys, time
from pathlib import Path
since = time.perf_counter()
from fuelline.cli.frugal import save_memory, save_threads
save_memory()
save_threads()
from fuelline import pipeline
class Silent:
    def expect(self, size_bytes): ...
    def advance(self, size_bytes): ...
run = Path(sys.argv[2])
if sys.argv[1] == "import":
    pipeline.import_files([Path(sys.argv[3])], run, partial=False, jobs=None, progress=Silent())
    told = {"run_bytes": sum(path.stat().st_size for path in run.iterdir())}
else:
    answer = pipeline.diagnose_run(run)
    told = {"devices": len(answer.devices), "verdict": answer.verdict.code}
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
own_kib = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
told["wall_s"] = time.perf_counter() - since
told["cpu_s"] = sum(each.ru_utime + each.ru_stime for each in used)
told["peak_rss_bytes"] = max(own_kib, used[1].ru_maxrss) * 1024
print(json.dumps(told))
"""


def main(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--steps", default="50,200", help="smaller numbers of ranks, for growth")
    options = parser.parse_args(argv if argv is not None else [])
    sizes = [int(size) for size in options.steps.split(",") if size]
    found: list[dict[str, Any]] = []
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="fuelline-thousand-") as name:
        pieces = pack(SOURCE)
        for ranks in sorted({*sizes, options.ranks}):
            found.append(take(Path(name), pieces, ranks))
            figures = {"sizes": found, "passed": judge(found)}
            results.write_section("thousand_traces", section(figures))
    return figures


def pack(source: Path) -> tuple[bytes, list[bytes], bytes, int]:
    """Header, the events by clock, footer: packed but for the header; and how large a rank is."""
    text = gzip.decompress(source.read_bytes())
    begin, end = text.index(_START) + len(_START), text.rindex(b"]")
    body = text[begin:end]
    bodies = [gzip.compress(shift(body, by), 1) for by in _LATE_US]
    return text[:begin], bodies, gzip.compress(text[end:]), len(text)


def shift(body: bytes, by_us: int) -> bytes:
    """The same events by another clock."""

    def later(found: re.Match[bytes]) -> bytes:
        return found[1] + b"%d" % (int(found[2]) + by_us)

    return _TIME.sub(later, body)


def take(folder: Path, pieces: tuple[bytes, list[bytes], bytes, int], ranks: int) -> dict[str, Any]:
    """Write, import, diagnose and remove so many ranks."""
    header, bodies, footer, size = pieces
    files, run = folder / f"traces{ranks}", folder / f"run{ranks}"
    files.mkdir()
    world = re.sub(rb'("world_size": )\d+', rb"\g<1>%d" % ranks, header)
    for rank in range(ranks):
        own = re.sub(rb'("rank": )\d+', rb"\g<1>%d" % rank, world)
        path = files / f"rank{rank}.json.gz"
        path.write_bytes(gzip.compress(own) + bodies[rank % len(bodies)] + footer)
    packed = sum(path.stat().st_size for path in files.iterdir())
    figures: dict[str, Any] = {"ranks": ranks, "bytes": size * ranks, "packed_bytes": packed}
    figures["import"] = ask("import", run, files)
    subprocess.run(["rm", "-r", str(files)], check=True)
    figures["merge"] = ask("merge", run)
    subprocess.run(["rm", "-r", str(run)], check=True)
    return figures


def ask(what: str, *paths: Path) -> dict[str, Any]:
    """One half, in a process of its own; what it died of, if it did."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    since = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _ASK, what, *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
        return {"failed": last[0], "wall_s": time.perf_counter() - since}
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def judge(found: list[dict[str, Any]]) -> bool:
    least, most = found[0], found[-1]
    halves = [each[half] for each in found for half in ("import", "merge")]
    if most["ranks"] < ENOUGH or any("failed" in half for half in halves):
        return False
    grown = [
        (most[half]["cpu_s"] / most["ranks"]) / (least[half]["cpu_s"] / least["ranks"])
        for half in ("import", "merge")
    ]
    return bool(
        all(half["peak_rss_bytes"] <= BARS["peak_rss_bytes"] for half in halves)
        and most["merge"]["wall_s"] <= BARS["merge_s"]
        and max(grown) <= _LINEAR
    )


def section(figures: dict[str, Any]) -> str:
    rows = "\n".join(
        f"| {each['ranks']} | {each['bytes'] / 1e9:.1f} | {half} | {tell(each[half])} |"
        for each in figures["sizes"]
        for half in ("import", "merge")
    )
    load = os.getloadavg()[0]
    return f"""## The traces of a thousand ranks

`python -m bench.thousand_traces`, {results.machine()}, load {load:.1f} at the end. A real trace of
54 MB under other ranks and clocks, one in eight late. Bars: {BARS["peak_rss_bytes"] / 1e6:.0f} MB a
process, a merge of {BARS["merge_s"]:.0f} s, linear, for 1,000 ranks. Passed:
{"yes" if figures["passed"] else "no"}.

| ranks | GB of text | | wall s | CPU s | peak MB of a process |
| --- | --- | --- | --- | --- | --- |
{rows}"""


def tell(half: dict[str, Any]) -> str:
    if "failed" in half:
        return f"{half['wall_s']:.0f} | failed: {half['failed'][:80]} | "
    return f"{half['wall_s']:.1f} | {half['cpu_s']:.1f} | {half['peak_rss_bytes'] / 1e6:.0f}"


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:])["passed"] else 1)
