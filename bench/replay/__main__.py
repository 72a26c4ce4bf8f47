"""`python -m bench.replay TRACE... [--json] [--no-counters]`: see the package.

Prints what was found and what is true, in percent of the time, and by how many points they differ.
Ends with 1 if device idle, input wait or launch-bound is further off than two points or unknown,
with 3 if a trace cannot be replayed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from bench.replay.events import NotReplayableError, read_job
from bench.replay.marks import window_of
from bench.replay.recording import write_recording
from bench.replay.truth import FIGURES, find_found, find_truth
from fuelline.ingest import load_trace
from fuelline.pipeline.imported import import_files
from fuelline.pipeline.recorded import diagnose_recording
from fuelline.schema.errors import FuellineError
from fuelline.schema.wire import Kind

BAR_POINTS = 2.0
JUDGED = ("device_idle", "input_wait", "launch_bound")
_CANNOT = 3


def main(argv: list[str] | None = None) -> int:
    """Replay all of them."""
    options = _options(argv)
    tried = [_try(path, with_counters=not options.no_counters) for path in options.traces]
    told = [each for each in tried if each is not None]
    print(json.dumps(told, indent=2) if options.json else "\n\n".join(map(_table, told)))
    if len(told) < len(tried):
        return _CANNOT
    return 0 if all(_is_right(each) for each in told) else 1


def _try(path: Path, *, with_counters: bool) -> dict[str, Any] | None:
    try:
        return replay(path, with_counters=with_counters)
    except (NotReplayableError, FuellineError) as reason:
        print(f"{path}: not replayed: {reason}", file=sys.stderr)
        return None


def replay(path: Path, *, with_counters: bool = True) -> dict[str, Any]:
    """One trace: `trace`, `true` and `found` as shares, and what the verdict was."""
    with tempfile.TemporaryDirectory(prefix="fuelline-replay-") as folder:
        imported, recorded = Path(folder) / "trace", Path(folder) / "run"
        import_files([path], imported, partial=True, jobs=1)
        trace = load_trace(imported)
        job = read_job(trace, trace.ranks[0])
        marks = write_recording(job, recorded, path.name, with_counters=with_counters)
        diagnosis = diagnose_recording(recorded, None)
        window = job.repeated_ns or window_of(job, marks)
        truth = find_truth(trace, job.rank, job.device, window)
    return {
        "trace": str(path),
        "true": msgspec.to_builtins(truth),
        "found": msgspec.to_builtins(find_found(diagnosis)),
        "steps": len(job.of(Kind.STEP) or job.of(Kind.WAIT)),
        "verdict": diagnosis.verdict.code,
    }


def _is_right(told: dict[str, Any]) -> bool:
    return all(
        told["found"][name] is not None
        and told["true"][name] is not None
        and abs(told["found"][name] - told["true"][name]) * 100 <= BAR_POINTS
        for name in JUDGED
    )


def _table(told: dict[str, Any]) -> str:
    lines = [f"{told['trace']}: {told['steps']} steps, verdict {told['verdict']}"]
    lines += [f"{'':14} {'true %':>8} {'found %':>8} {'points':>8}"]
    for name in FIGURES:
        true, found = told["true"][name], told["found"][name]
        apart = "" if None in (true, found) else f"{100 * (found - true):+8.1f}"
        lines.append(f"{name:14} {_percent(true):>8} {_percent(found):>8} {apart:>8}")
    return "\n".join(lines)


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.1f}"


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.replay", description=__doc__.splitlines()[0]
    )
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("--json", action="store_true", help="as JSON, shares from 0 to 1")
    parser.add_argument(
        "--no-counters", action="store_true", help="leave out what the driver's library would say"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
