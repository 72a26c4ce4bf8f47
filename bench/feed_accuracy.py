"""Is `fuelline feed` right? The same loader timed by hand and fed, in turn; medians of pairs.

Beside the rates it checks that no file of the script's folder changed and that no process is left.
About 4 minutes.

    python -m bench.feed_accuracy
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import results
from bench.zoo.faults.processes import REPOSITORY
from bench.zoo.job import my_turn
from bench.zoo.record import FUELLINE

KINDS = {
    "inline": "CPU work, no workers",
    "waiting": "waits, 4 workers",
    "files": "small files, 1 worker, several epochs",
}
PAIRS = 5
SECONDS = 5.0
FILES = 4000
BAR = 0.05


def main() -> dict[str, Any]:
    """The figures and whether they meet the bar."""
    with my_turn(), tempfile.TemporaryDirectory(prefix="fuelline-bench-") as name:
        folder = Path(name)
        for number in range(FILES):
            (folder / f"{number}.bin").write_bytes(bytes(8192))
        before = _tree(folder)
        pairs: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        for number in range(PAIRS):
            for kind in KINDS:
                pairs[kind].append(_pair(kind, folder, is_hand_first=number % 2 == 0))
        unchanged, left = _tree(folder) == before, _left(name)
    figures: dict[str, Any] = {
        kind: {
            "by_hand": statistics.median(hand for hand, _ in measured),
            "fed": statistics.median(fed for _, fed in measured),
            "error": statistics.median(fed / hand for hand, fed in measured) - 1,
        }
        for kind, measured in pairs.items()
    }
    worst = max(abs(figures[kind]["error"]) for kind in KINDS)
    figures |= {"worst": worst, "unchanged": unchanged, "left": left}
    figures["passed"] = worst <= BAR and unchanged and not left
    results.write_section("feed_accuracy", markdown(figures))
    return figures


def _pair(kind: str, folder: Path, *, is_hand_first: bool) -> tuple[float, float]:
    runs = [_time_by_hand, _feed] if is_hand_first else [_feed, _time_by_hand]
    rates = [run(kind, folder) for run in runs]
    return (rates[0], rates[1]) if is_hand_first else (rates[1], rates[0])


def _time_by_hand(kind: str, folder: Path) -> float:
    return float(_run([sys.executable, *_job(kind, folder)], {"HAND": "1"}))


def _feed(kind: str, folder: Path) -> float:
    command = [*FUELLINE, "feed", "--seconds", str(SECONDS), "--json"]
    told = json.loads(_run([*command, "--", *_job(kind, folder)], {}))
    return float(told["samples_per_s"]["value"])


def _job(kind: str, folder: Path) -> list[str]:
    return ["-m", "bench.feed_job", kind, str(folder), str(SECONDS)]


def _run(command: list[str], more: dict[str, str]) -> str:
    env = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}", **more}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr[-1500:]}")
    return done.stdout


def _tree(folder: Path) -> list[tuple[str, int, int]]:
    """Every file with its size and change time, the repository's own among them."""
    found = [*folder.rglob("*"), *(REPOSITORY / "bench").rglob("*")]
    rows = [(str(path), path.stat()) for path in found if "out" not in path.parts]
    return sorted((name, status.st_size, status.st_mtime_ns) for name, status in rows)


def _left(word: str) -> list[str]:
    """Command lines of processes that still know the folder."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if word in line]


def markdown(figures: dict[str, Any]) -> str:
    """The section of the results page."""
    rows = "\n".join(
        f"| {what} | {figures[kind]['by_hand']:.0f} | {figures[kind]['fed']:.0f} "
        f"| {100 * figures[kind]['error']:+.1f} % | 5 % |"
        for kind, what in KINDS.items()
    )
    left = "no" if not figures["left"] else f"{len(figures['left'])}"
    changed = "none" if figures["unchanged"] else "some"
    return f"""## Accuracy of `feed`

`python -m bench.feed_accuracy`, {results.machine()}. The same loader timed by hand and by
`feed`, in turn, {SECONDS:.0f} s each; medians of {PAIRS} pairs (error: of the ratios).

| loader | by hand, samples/s | fed | error | bar |
| --- | --- | --- | --- | --- |
{rows}

Files changed: {changed}; processes left: {left}."""


if __name__ == "__main__":
    measured = main()
    print(measured)
    sys.exit(0 if measured["passed"] else 1)
