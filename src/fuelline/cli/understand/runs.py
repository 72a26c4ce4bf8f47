"""`fuelline runs`: what was recorded."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fuelline.schema.files import is_below, read_below
from fuelline.schema.foreign import decode_json
from fuelline.schema.names import clean
from fuelline.schema.run.recording import MANIFEST_FILE, MOST_FACTS_BYTES, RUN_FILE, Moment, Number
from fuelline.store.runs import list_runs, runs_folder

if TYPE_CHECKING:
    import argparse

_RECENT = 50
"""Runs among which a running one is looked for."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "runs", help="list the recorded runs", description="List the recorded runs, oldest first."
    )
    parser.set_defaults(act=act)


def act(_: argparse.Namespace) -> int:
    """Print one line for each run."""
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


def find_running() -> Path | None:
    """The newest run whose launcher lives on this host; None if there is none."""
    here = msgspec.json.encode(socket.gethostname())
    for path in reversed(list_runs()[-_RECENT:]):
        try:
            run = read_listed(path)
        except (OSError, msgspec.MsgspecError):
            continue
        is_here = bytes(run.host) == here and run.launcher_pid is not None
        if is_here and run.ended_ns is None and Path(f"/proc/{run.launcher_pid}").exists():
            return path
    return None


class Listed(msgspec.Struct):
    """As much of RunFacts as a list of runs needs: it must not take the memory of the worst."""

    started_wall_ns: Moment
    started_ns: Moment
    host: msgspec.Raw
    command: msgspec.Raw
    ended_ns: Moment | None = None
    exit_code: Number | None = None
    launcher_pid: Number | None = None


class _ListedManifest(msgspec.Struct):
    run: Listed


def read_listed(run_dir: Path) -> Listed:
    """What a run says of itself; OSError or MsgspecError if nothing sane."""
    if is_below(run_dir, MANIFEST_FILE):
        content = read_below(run_dir, MANIFEST_FILE, MOST_FACTS_BYTES)
        return decode_json(content, _ListedManifest).run
    return decode_json(read_below(run_dir, RUN_FILE, MOST_FACTS_BYTES), Listed)
