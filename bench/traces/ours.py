"""One reading of a trace, measured from inside: `python -m bench.traces.ours TRACE... [--jobs N]`.

Prints JSON: CPU seconds of this process and its children from the start of Python to the ledger,
and the largest memory of any of them. Polars is told what `fuelline import` tells it.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

from fuelline.cli.frugal import save_memory, save_threads

save_memory()
save_threads()
from fuelline.pipeline import diagnose_run, import_files  # noqa: E402 - polars listens only now


class Silent:
    def expect(self, size_bytes: int) -> None: ...

    def advance(self, size_bytes: int) -> None: ...


def cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def peak_rss_bytes() -> int:
    """Not `ru_maxrss` of ourselves: it begins with what the process that started us held."""
    status = Path("/proc/self/status").read_text()
    own_kib = int(status.partition("VmHWM:")[2].split()[0])
    return max(own_kib, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int)
    options = parser.parse_args()
    since = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        import_files(options.trace, run_dir, partial=False, jobs=options.jobs, progress=Silent())
        loaded = cpu_s()
        answer = diagnose_run(run_dir)
        size_bytes = sum(path.stat().st_size for path in run_dir.iterdir())
    figures = {
        "cpu_s": cpu_s(),
        "load_cpu_s": loaded,
        "wall_s": time.perf_counter() - since,
        "peak_rss_bytes": peak_rss_bytes(),
        "run_bytes": size_bytes,
        "ledgers": [device.ledger for device in answer.devices],
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
