"""`fuelline runs`: what was recorded."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from fuelline.cli.store import list_runs, read_listed, runs_folder
from fuelline.schema.names import clean

if TYPE_CHECKING:
    import argparse
    from pathlib import Path


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "runs", help="list the recorded runs", description="List the recorded runs, oldest first."
    )
    parser.set_defaults(act=act)


def act(_: argparse.Namespace) -> int:
    """Print one line a run."""
    runs = list_runs()
    for path in runs:
        print(clean(_line(path)))
    if not runs:
        print(f"No runs in {runs_folder()}. `fuelline run train.py` records one.")
    return 0


def _line(path: Path) -> str:
    try:
        facts = read_listed(path)
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(facts.started_wall_ns / 1e9))
    except (OSError, OverflowError, ValueError):  # msgspec's are ValueErrors, as times without end
        return f"{path.name}  unreadable"
    seconds = (
        "?" if facts.ended_ns is None else f"{(facts.ended_ns - facts.started_ns) / 1e9:.0f} s"
    )
    state = "unfinished" if facts.exit_code is None else f"exit {facts.exit_code}"
    if _IMPORT.match(facts.command):
        state = "imported"
    return f"{path.name}  {when}  {seconds:>7}  {state}"


_IMPORT = re.compile(rb'\[\s*"fuelline",\s*"import"')
