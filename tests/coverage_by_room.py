"""Prints what share of lines and branches the last `make coverage` has run, for each room."""

from __future__ import annotations

import collections
import io
import json
import sys
import tempfile
from pathlib import Path

import coverage

AIMS = {"schema": 100, "timeline": 100, "signals": 100}
AIM_OF_ALL = 90


def main() -> None:
    """The table, with the aims beside it."""
    files = read_files()
    rooms: dict[str, list[str]] = collections.defaultdict(list)
    for path in files:
        inner = Path(path).parts[Path(path).parts.index("fuelline") + 1 :]
        rooms[inner[0] if len(inner) > 1 else "(top)"].append(path)
    lines = ["room        lines  not run  branches  not taken  covered  aim"]
    for room, paths in [*sorted(rooms.items()), ("all", list(files))]:
        total = collections.Counter[str]()
        for path in paths:
            total.update(files[path])
        lines.append(describe(room, total))
    sys.stdout.write("\n".join(lines) + "\n")


def read_files() -> dict[str, dict[str, int]]:
    """Counts by file, from the data that the tests left."""
    measured = coverage.Coverage(messages=False)
    measured.load()
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        measured.json_report(outfile=report.name)
        told = json.load(io.TextIOWrapper(report))
    return {
        path: {name: count for name, count in file["summary"].items() if isinstance(count, int)}
        for path, file in told["files"].items()
    }


def describe(room: str, total: collections.Counter[str]) -> str:
    """One row."""
    there = total["num_statements"] + total["num_branches"]
    share = (total["covered_lines"] + total["covered_branches"]) / there if there else 1.0
    aim = AIM_OF_ALL if room == "all" else AIMS.get(room)
    return (
        f"{room:10} {total['num_statements']:6} {total['missing_lines']:8} "
        f"{total['num_branches']:9} {total['missing_branches']:10} {share:8.1%}"
        + (f" {aim:3}%" if aim else "")
    )


if __name__ == "__main__":
    main()
