"""`fuelline runs`: what was recorded."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from fuelline.cli.store import list_runs, runs_folder
from fuelline.schema.names import clean
from fuelline.schema.recording import MANIFEST_FILE, RUN_FILE, Manifest, RunFacts

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
        facts = _facts(path)
    except (OSError, msgspec.MsgspecError):
        return f"{path.name}  unreadable"
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(facts.started_wall_ns / 1e9))
    seconds = (
        "?" if facts.ended_ns is None else f"{(facts.ended_ns - facts.started_ns) / 1e9:.0f} s"
    )
    state = "unfinished" if facts.exit_code is None else f"exit {facts.exit_code}"
    if facts.command[:2] == ["fuelline", "import"]:
        state = "imported"
    return f"{path.name}  {when}  {seconds:>7}  {state}"


def _facts(path: Path) -> RunFacts:
    manifest = path / MANIFEST_FILE
    if manifest.exists():
        return msgspec.json.decode(manifest.read_bytes(), type=Manifest).run
    return msgspec.json.decode((path / RUN_FILE).read_bytes(), type=RunFacts)
