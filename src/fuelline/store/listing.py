"""As much of a run as a list of runs needs: when it was started, how it ended, what it came to.

What it came to is in a small file in the run's folder, written by whoever diagnosed it last.
"""

from __future__ import annotations

import os
import re
import socket
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from fuelline.schema.files import (
    is_below,
    is_own,
    is_own_folder,
    list_below,
    read_below,
    write_whole,
)
from fuelline.schema.foreign import decode_json
from fuelline.schema.names import encodable
from fuelline.schema.run.recording import (
    MANIFEST_FILE,
    MOST_FACTS_BYTES,
    PART_PREFIX,
    RUN_FILE,
    Moment,
    Number,
)
from fuelline.store.runs import is_alive

if TYPE_CHECKING:
    from collections.abc import Sequence

_RECENT = 50
"""Runs among which a running one is looked for."""
VERDICT_FILE = "verdict.json"
PENDING_FILE = "fleet-pending.json"
"""Where a run's row of the fleet's store is still to go."""
_MOST_VERDICT_BYTES = 64 * 1024
_IMPORT = re.compile(rb'\[\s*"fuelline",\s*"import"')


_OF_A_RUN = re.compile(
    rf"run\.json|manifest\.json|{re.escape(VERDICT_FILE)}|{re.escape(PENDING_FILE)}|observer\.(?:log|journal)|\w[\w-]*\.parquet"
    rf"|zoom-\d+\.json\.gz|spool|fix|served|{PART_PREFIX}\d+|\..+\.[0-9a-f]{{12}}"
)
"""What recording, importing, compacting and diagnosing write into a run's folder; the last are
drafts of those."""


class SeenVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to when it was diagnosed last."""

    words: str
    """`PR201 too few workers`, `CP400 healthy`, or `cannot tell`."""
    code: str | None
    stage: str | None
    limit: str | None
    share_of_wall: float | None
    samples_per_s: float | None
    fuelline_version: str
    """That said so."""


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `fuelline runs`, and one object of its `--json`."""

    run: str
    """Its id, as in the store."""
    path: str
    started: str | None
    """ISO 8601, UTC; null if it cannot be read."""
    state: Literal["running", "ok", "failed", "unfinished", "imported", "unreadable"]
    """unfinished: its end was not recorded: the launcher was killed, or it runs on another host."""
    exit_code: int | None
    """Of the job; negative is the signal that ended it."""
    seconds: float | None
    size_bytes: int
    """Of the files in its folder."""
    verdict: SeenVerdict | None
    """Null until it was diagnosed."""


class Listed(msgspec.Struct):
    """A part of RunFacts: a list must not take the memory of the worst run in it."""

    started_wall_ns: Moment
    started_ns: Moment
    host: msgspec.Raw
    command: msgspec.Raw
    ended_ns: Moment | None = None
    exit_code: Number | None = None
    launcher_pid: Number | None = None
    attached: msgspec.Raw | None = None


class _ListedManifest(msgspec.Struct):
    run: Listed


def read_listed(run_dir: Path) -> Listed:
    """What a run says of itself, of several hosts the first; OSError or MsgspecError if nothing."""
    if is_below(run_dir, MANIFEST_FILE):
        content = read_below(run_dir, MANIFEST_FILE, MOST_FACTS_BYTES)
        return decode_json(content, _ListedManifest).run
    if not is_below(run_dir, RUN_FILE):
        parts = [name for name in list_below(run_dir) if name.startswith(PART_PREFIX)]
        run_dir = run_dir / parts[0] if parts else run_dir
    return decode_json(read_below(run_dir, RUN_FILE, MOST_FACTS_BYTES), Listed)


def find_start_ns(run_dir: Path) -> int:
    """When it was started, by the wall clock; a start after the folder's last change is made up."""
    try:
        changed_ns = run_dir.stat().st_mtime_ns
    except OSError:
        return 0
    try:
        return min(read_listed(run_dir).started_wall_ns, changed_ns)
    except (OSError, msgspec.MsgspecError):
        return changed_ns


def describe(run_dir: Path, run_id: str) -> ListedRun:
    """Whatever can be said of a run without reading what was recorded."""
    try:
        run = read_listed(run_dir)
        started = datetime.fromtimestamp(run.started_wall_ns / 1e9, timezone.utc)
    except (OSError, OverflowError, ValueError):  # msgspec's are ValueErrors, as times without end
        run, started = None, None
    return ListedRun(
        run=run_id,
        path=encodable(str(run_dir)),
        started=None if started is None else started.isoformat(timespec="seconds"),
        state="unreadable" if run is None else _find_state(run),
        exit_code=None if run is None else run.exit_code,
        seconds=None
        if run is None or run.ended_ns is None
        else (run.ended_ns - run.started_ns) / 1e9,
        size_bytes=count_bytes(run_dir),
        verdict=read_verdict(run_dir),
    )


def _find_state(run: Listed) -> Literal["running", "ok", "failed", "unfinished", "imported"]:
    if _IMPORT.match(run.command):
        return "imported"
    if run.exit_code is not None:
        return "failed" if run.exit_code else "ok"
    if run.attached is not None and run.ended_ns is not None:
        return "ok"
    return "running" if is_running(run) else "unfinished"


def count_bytes(folder: Path) -> int:
    """Of all files below a folder; links are not followed."""
    walk = os.walk(folder)
    return sum(_size_of(f"{parent}/{name}") for parent, _, names in walk for name in names)


def _size_of(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:  # gone since
        return 0


def keep_verdict(run_dir: Path, verdict: SeenVerdict) -> None:
    """Write it beside the run, if the folder is ours alone; a list can do without."""
    real = Path(os.path.realpath(run_dir))
    if not is_own_folder(real):
        return
    try:
        with write_whole(real / VERDICT_FILE) as file:
            file.write(msgspec.json.encode(verdict))
    except OSError:  # no room, or a read-only disk
        return


def read_verdict(run_dir: Path) -> SeenVerdict | None:
    """What it came to; None if nobody asked yet."""
    try:
        content = read_below(run_dir, VERDICT_FILE, _MOST_VERDICT_BYTES)
        return decode_json(content, SeenVerdict)
    except (OSError, msgspec.MsgspecError):
        return None


def find_obstacle(run_dir: Path) -> str | None:
    """Why a folder is not ours to delete, as half a sentence; None if all in it is a run's."""
    try:
        if not is_own(os.lstat(run_dir)) or run_dir.is_symlink():
            return "its folder is a link, or another user's"
        foreign = [name for name in list_below(run_dir) if _OF_A_RUN.fullmatch(name) is None]
    except OSError as error:
        return f"its folder cannot be read ({error.strerror})"
    if foreign:
        return f"its folder holds {foreign[0]}, which is no part of a run; move that elsewhere"
    return None


def _is_running(run_dir: Path) -> bool:
    try:
        return is_running(read_listed(run_dir))
    except (OSError, msgspec.MsgspecError):
        return False


def is_running(run: Listed) -> bool:
    """Whether its launcher lives on this host."""
    if run.ended_ns is not None or run.launcher_pid is None:
        return False
    is_here = bytes(run.host) == msgspec.json.encode(socket.gethostname())
    return is_here and is_alive(run.launcher_pid)


def find_running(runs: Sequence[Path]) -> Path | None:
    """The newest of these runs that goes on here; None if there is none."""
    return next((path for path in reversed(runs[-_RECENT:]) if _is_running(path)), None)
