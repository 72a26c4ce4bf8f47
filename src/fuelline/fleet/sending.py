"""A run's row on its way to the store: kept beside the run first, so that nothing is lost.

A job's end waits for the store no longer than the user allows. What has not arrived by then stays
in the run's folder, and whoever sends something to the same store next takes it along.
"""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from fuelline.fleet.shelf import encode_row, place_of, put
from fuelline.fleet.summary import summarise_run
from fuelline.schema.errors import FuellineError, RefusedError
from fuelline.schema.files import is_own_folder, read_below, write_whole
from fuelline.schema.foreign import decode_json
from fuelline.store.listing import PENDING_FILE
from fuelline.store.runs import runs_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROW_FILE = "fleet-row.parquet"
_MOST_BYTES = 1 << 20
_MOST_BEHIND = 100
"""Newest runs among which unsent rows are looked for."""


class _Pending(msgspec.Struct, frozen=True):
    """Where a row is still to go."""

    store: str
    place: str = ""
    """Empty until it is summed up."""
    batch_id: str = ""


def add_row(run_dir: Path, store: str, batch_id: str = "") -> str:
    """Put a run into the store, and say where; RefusedError if that fails."""
    run = summarise_run(run_dir, batch_id)
    place = place_of(run)
    try:
        put(store, place, encode_row(run))
    except OSError as error:
        raise RefusedError(
            f"{run.run_id} could not be added to {store} ({error.strerror or error}). The run "
            "itself is unchanged. Check the store's path, its room, and your right to write there."
        ) from None
    return place


def send_row(run_dir: Path, store: str, batch_id: str, wait_s: float) -> str | None:
    """Send what a run came to, and what earlier runs still owe; why it stays here, if it does.

    Summing up a long run takes its time as well: both together have no more than `wait_s`.
    """
    until_s = time.monotonic() + wait_s
    pending = _Pending(store, batch_id=batch_id)
    _keep(run_dir, PENDING_FILE, msgspec.json.encode(pending))
    reason = _do_within(until_s, partial(_send, run_dir, pending))
    for other, owed in _list_behind(store, run_dir) if reason is None else ():
        failed = _do_within(until_s, partial(_send, other, owed)) is not None
        if time.monotonic() > until_s or (failed and (other / ROW_FILE).exists()):
            break  # the rest is for the next time
    return reason


def _send(run_dir: Path, pending: _Pending) -> None:
    """Once it is summed up, a row is kept until it has arrived."""
    content = _read_row(run_dir) if pending.place else b""
    if not content:
        run = summarise_run(run_dir, pending.batch_id)
        content = encode_row(run)
        pending = msgspec.structs.replace(pending, place=place_of(run))
        _keep(run_dir, ROW_FILE, content)
        _keep(run_dir, PENDING_FILE, msgspec.json.encode(pending))
    put(pending.store, pending.place, content)
    _forget(run_dir)


def _read_row(run_dir: Path) -> bytes:
    try:
        return read_below(run_dir, ROW_FILE, _MOST_BYTES)
    except OSError:
        return b""


def _keep(run_dir: Path, name: str, content: bytes) -> None:
    """Beside the run, if its folder is ours alone and there is room."""
    real = run_dir.resolve()
    if not is_own_folder(real):
        return
    try:
        with write_whole(real / name) as file:
            file.write(content)
    except OSError:
        return


def _forget(run_dir: Path) -> None:
    try:
        (run_dir / PENDING_FILE).unlink(missing_ok=True)
        (run_dir / ROW_FILE).unlink(missing_ok=True)
    except OSError:
        return  # it is sent again, in place of itself


def _do_within(until_s: float, action: Callable[[], None]) -> str | None:
    """On a thread that is left behind if it takes too long; why it failed, if it did."""
    problems: list[str] = []

    def act() -> None:
        try:
            action()
        except OSError as error:
            problems.append(str(error.strerror or error))
        except FuellineError as error:
            problems.append(str(error))

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(max(until_s - time.monotonic(), 0.0))
    if thread.is_alive():
        return "it was not there in time (--store-wait)"
    return problems[0] if problems else None


def _list_behind(store: str, done: Path) -> Iterator[tuple[Path, _Pending]]:
    """Runs whose row has not arrived there, the newest first; names of folders sort by time."""
    try:
        names = sorted((each.name for each in os.scandir(runs_folder())), reverse=True)
    except (OSError, RefusedError):
        return
    for run_dir in (runs_folder() / name for name in names[:_MOST_BEHIND]):
        owed = _read_pending(run_dir) if run_dir != done else None
        if owed is not None and owed.store == store:
            yield run_dir, owed


def _read_pending(run_dir: Path) -> _Pending | None:
    try:
        return decode_json(read_below(run_dir, PENDING_FILE, _MOST_BYTES), _Pending)
    except (OSError, msgspec.MsgspecError):
        return None
