"""Our own recording as a Timeline: compacted, raw, crashed or copied from elsewhere.

A run starts as spools and a journal. Compaction turns them into Parquet tables, writes the manifest
last and only then deletes the raw files, so that at every moment one of the two is whole. A run
that cannot be compacted (full disk, read-only copy) is read raw.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import socket
import threading
import time
import zlib
from pathlib import Path
from typing import TypeVar

import msgspec
import polars as pl

from fuelline.ingest.parquet import DAMAGE, SUFFIX, brief, read_table
from fuelline.ingest.recording.gather import UncompactedRun, find_last_write, gather
from fuelline.ingest.recording.thinning import BoundedTable, state_joined
from fuelline.schema import wire
from fuelline.schema.diagnosis.fixes import FIX_DIR, FixEvent
from fuelline.schema.errors import DamagedRecordingError, NewerRecordingError, NotARecordingError
from fuelline.schema.files import (
    is_below,
    is_own_folder,
    list_below,
    open_below,
    read_below,
    write_whole,
)
from fuelline.schema.foreign import decode_json
from fuelline.schema.run.recording import (
    FORMAT,
    MANIFEST_FILE,
    MOST_FACTS_BYTES,
    PART_PREFIX,
    RECORDING_VERSION,
    RUN_FILE,
    SPOOL_DIR,
    STEP_HOOK,
    WHOLE_VERSION,
    Blindspot,
    Manifest,
    Number,
    RunFacts,
    TableFacts,
)
from fuelline.schema.run.samples import JOURNAL_NAME
from fuelline.store.runs import is_alive
from fuelline.timeline import Timeline
from fuelline.timeline.tables import TABLES, is_possible

LEFT_NS = 3600 * 10**9
"""A run of another host is over if nothing was written for this long: its observer writes every
second, and clocks of hosts that share a folder differ by minutes at worst."""


class _Stamp(msgspec.Struct):
    """The part of run.json and manifest.json that every version will have."""

    format: str = ""
    version: Number = 0


_LOCK_SECONDS = 30.0
"""How long to wait for another reader who compacts; then the raw files are read as they are."""


def locate_recording(run_dir: Path) -> Path:
    """Where a run's recording is: there, or in the local folder where its host still has it.

    That folder is believed only if it is ours alone and has the same run: the word of a run from
    somebody else leads nowhere.
    """
    try:
        run = decode_json(read_below(run_dir, RUN_FILE, MOST_FACTS_BYTES), RunFacts)
        staged = Path(run.staged_in or "")
        if not run.staged_in or not staged.is_absolute() or not is_own_folder(staged):
            return run_dir
        there = decode_json(read_below(staged, RUN_FILE, MOST_FACTS_BYTES), RunFacts)
    except (OSError, ValueError):  # ValueError: msgspec's, and a path with a zero in it
        return run_dir
    is_same = (run.run_id, run.started_ns) == (there.run_id, there.started_ns)
    return staged if is_same else run_dir


def read_recording(run_dir: Path) -> Timeline:
    """Read a run, and compact it on the way if it is ours, has ended and was not compacted yet."""
    run_dir = locate_recording(run_dir)
    if (
        is_below(run_dir, MANIFEST_FILE)  # compacted
        or not is_below(run_dir, RUN_FILE)  # no run
        or not _is_ours(run_dir)
        or not has_ended(read_run_facts(run_dir), run_dir)
    ):
        return load_recording(run_dir)
    try:
        return compact_recording(run_dir)
    except OSError:
        return load_recording(run_dir)  # no room, or a read-only copy: the raw files serve as well


def _is_ours(run_dir: Path) -> bool:
    """Whether nobody else can put anything in the way of what we write there.

    A part of a run over several hosts lies in a folder that must be ours, too.
    """
    real = Path(os.path.realpath(run_dir))
    is_part = real.name.startswith(PART_PREFIX)
    return is_own_folder(real) and (not is_part or is_own_folder(real.parent))


def load_recording(run_dir: Path) -> Timeline:
    """Read a run as it is and leave it alone."""
    if not run_dir.is_dir():
        raise NotARecordingError(
            f"{run_dir} is not a folder. Nothing was read. `fuelline run train.py` makes a "
            f"recording."
        )
    if is_below(run_dir, MANIFEST_FILE):
        return _load_compacted(run_dir)
    run = read_run_facts(run_dir)
    return _timeline(run, _gather(run_dir, run))


def has_ended(run: RunFacts, run_dir: Path) -> bool:
    """Whether nobody writes to this run any more, also if its launcher was killed.

    Of another host, or of a container with its own name, no process can be seen here: its run
    goes on until nobody has written to it for long.
    """
    if run.ended_ns is not None:
        return True
    if run.host != socket.gethostname():
        written_ns = find_last_write(run_dir)
        return written_ns is not None and time.time_ns() - written_ns > LEFT_NS
    try:
        names = list_below(run_dir, SPOOL_DIR)
    except OSError:
        names = []
    writers = {int(found[1]) for name in names if (found := _SPOOL_NAME.match(name))}
    # A job that has not loaded its framework yet has no spool, but it has a launcher.
    return not any(pid and is_alive(pid) for pid in {*writers, run.launcher_pid})


_SPOOL_NAME = re.compile(rf"(\d{{1,10}})(?:-\d+)?{re.escape(wire.SUFFIX)}")


def compact_recording(run_dir: Path) -> Timeline:
    """Turn the raw files of an ended run into tables and a manifest; returns the Timeline.

    Raises OSError if there is no room; the raw files are then still there. They also stay, and are
    read again the next time, if they hold more than could be read, or more facts than a manifest.
    """
    if is_below(run_dir, MANIFEST_FILE):
        return _load_compacted(run_dir)
    run = read_run_facts(run_dir)
    with os.fdopen(open_below(run_dir, RUN_FILE), "rb") as lock:
        _wait_for(lock.fileno())  # two readers at once: the second finds it done
        if is_below(run_dir, MANIFEST_FILE):
            return _load_compacted(run_dir)
        return _compact(run_dir, run)


def _wait_for(lock: int) -> None:
    """Hold the lock; BlockingIOError if somebody does not let go of it."""
    deadline_s = time.monotonic() + _LOCK_SECONDS
    while time.monotonic() < deadline_s:
        if _holds(lock):
            return
        threading.Event().wait(0.05)
    raise BlockingIOError(errno.EAGAIN, "another reader has been holding it for too long", RUN_FILE)


def _holds(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _compact(run_dir: Path, run: RunFacts) -> Timeline:
    remains = _gather(run_dir, run)
    if remains.is_damaged:
        return _timeline(run, remains)
    tables = {
        name: _write_table(run_dir / f"{name}{SUFFIX}", frame)
        for name, frame in remains.tables.items()
    }
    manifest = Manifest(
        run=run,
        loaders=remains.loaders,
        processes=remains.processes,
        blindspots=remains.blindspots,
        limits=remains.limits,
        source_lines=remains.source_lines,
        tables=tables,
        devices=remains.devices,
        version=WHOLE_VERSION if remains.excerpts is None else RECORDING_VERSION,
        excerpts=remains.excerpts,
    )
    content = msgspec.json.format(msgspec.json.encode(manifest))
    if len(content) > MOST_FACTS_BYTES:
        return _timeline(run, remains)
    write_file(run_dir / MANIFEST_FILE, content)
    _remove_raw(run_dir)
    # Read again: pieces of spools and journal hold on to more memory than the tables need.
    del remains
    return _load_compacted(run_dir)


def _remove_raw(run_dir: Path) -> None:
    """The files that are in the tables now, and nothing else that may be next to them."""
    folder = run_dir / SPOOL_DIR
    try:
        for name in list_below(run_dir, SPOOL_DIR):
            if _SPOOL_NAME.fullmatch(name):
                (folder / name).unlink()
        folder.rmdir()
    except OSError:
        pass  # there was none, or something of somebody else's is in it
    (run_dir / JOURNAL_NAME).unlink(missing_ok=True)


def _gather(run_dir: Path, run: RunFacts) -> UncompactedRun:
    """What the raw files hold; tables without them and without a manifest must not be replaced."""
    has_raw = is_below(run_dir, SPOOL_DIR) or is_below(run_dir, JOURNAL_NAME)
    tables = [name for name in list_below(run_dir) if name.endswith(SUFFIX)]
    if tables and not has_raw:
        raise DamagedRecordingError(
            f"{run_dir / MANIFEST_FILE} is missing, which says what is in {tables[0]} and the "
            f"other tables. {DAMAGE}"
        )
    return gather(run_dir, run)


def write_file(path: Path, data: bytes | memoryview) -> None:
    """Write all of it or nothing: a reader never sees half a file."""
    with write_whole(path) as file:
        file.write(data)


def _write_table(path: Path, frame: pl.DataFrame) -> TableFacts:
    # Through memory: polars takes no path that is not UTF-8.
    buffer = io.BytesIO()
    try:
        frame.write_parquet(buffer, compression="zstd", compression_level=9, statistics=False)
    except pl.exceptions.PolarsError as error:  # a table of ours: only memory can be missing
        raise MemoryError(brief(error)) from None
    data = buffer.getvalue()
    write_file(path, data)
    return TableFacts(rows=frame.height, size_bytes=len(data), crc32=zlib.crc32(data))


def read_run_facts(run_dir: Path) -> RunFacts:
    """What run.json says; the launcher writes it again when the job has ended."""
    if not is_below(run_dir, RUN_FILE):
        raise NotARecordingError(
            f"{run_dir} holds no {RUN_FILE} or {MANIFEST_FILE}, so it is not a recording. "
            f"Nothing was read. "
            "`fuelline runs` lists what there is."
        )
    run = _decode(run_dir, RUN_FILE, RunFacts)
    return msgspec.structs.replace(run, blindspots=[*run.blindspots, *_say_staged(run)])


def _say_staged(run: RunFacts) -> list[Blindspot]:
    if run.staged_in is None:
        return []
    why = f"it is on {run.host} in {run.staged_in} and will be moved here when the job has ended"
    return [
        Blindspot(
            what="the recording itself",
            why=f"{why}; with `fuelline run --no-staging` it is written here at once",
            forbids="anything about this job; diagnose it on that host, or wait",
        )
    ]


def read_manifest(run_dir: Path) -> Manifest:
    """The table of contents of a run that is whole."""
    if not is_below(run_dir, MANIFEST_FILE):
        raise NotARecordingError(
            f"{run_dir} holds no {MANIFEST_FILE}. Nothing was read. `fuelline runs` lists what "
            "there is."
        )
    return _decode(run_dir, MANIFEST_FILE, Manifest)


def _load_compacted(run_dir: Path) -> Timeline:
    manifest = read_manifest(run_dir)
    tables: dict[str, pl.DataFrame] = {}
    bounded: list[BoundedTable] = []
    for name, facts in manifest.tables.items():
        if name in TABLES:
            bounded.append(BoundedTable(name))
            bounded[-1].add(_read_table(run_dir, name, facts))
            tables[name] = bounded[-1].frame()
    return Timeline(
        run=manifest.run,
        tables=tables,
        loaders=tuple(manifest.loaders),
        processes=tuple(manifest.processes),
        limits=tuple(manifest.limits),
        blindspots=_with_codes(
            *manifest.run.blindspots, *manifest.blindspots, *state_joined(bounded)
        ),
        source_lines=manifest.source_lines,
        devices=tuple(manifest.devices),
        excerpts=manifest.excerpts,
    )


_STEP_HOOKS_OF_0_1 = ("hook loader wait", "hook backward", "hook optimizer step")
"""Version 0.1.0 wrote no codes."""


def _with_codes(*spots: Blindspot) -> tuple[Blindspot, ...]:
    return tuple(
        msgspec.structs.replace(spot, code=STEP_HOOK)
        if not spot.code and spot.what in _STEP_HOOKS_OF_0_1
        else spot
        for spot in spots
    )


def _read_table(run_dir: Path, name: str, facts: TableFacts) -> pl.DataFrame:
    frame = read_table(run_dir, name, facts)
    path = run_dir / f"{name}{SUFFIX}"
    columns = TABLES[name]
    if not set(frame.columns) <= set(columns):
        raise DamagedRecordingError(
            f"{path} has unknown columns {sorted(frame.columns)!s:.200}. {DAMAGE}"
        )
    for column, kind in frame.schema.items():
        if kind != columns[column]:
            raise DamagedRecordingError(
                f"{path} has {kind} in the column {column} instead of {columns[column]}. {DAMAGE}"
            )
    impossible = frame.filter(~is_possible(frame)).height if frame.height else 0
    if impossible:
        raise DamagedRecordingError(
            f"{path} has {impossible} rows that no recorder writes: values are missing or out of "
            f"range. {DAMAGE}"
        )
    added = [
        pl.lit(None, kind).alias(name)
        for name, kind in columns.items()
        if name not in frame.columns
    ]
    return frame.with_columns(added).select(*columns)


_T = TypeVar("_T", RunFacts, Manifest)


def _decode(run_dir: Path, name: str, kind: type[_T]) -> _T:
    path = run_dir / name
    try:
        data = read_below(run_dir, name, MOST_FACTS_BYTES)
    except OSError as error:
        raise DamagedRecordingError(f"{path}: {error.strerror}. {DAMAGE}") from None
    try:
        stamp = decode_json(data, _Stamp)
    except msgspec.MsgspecError as error:
        raise DamagedRecordingError(
            f"{path} is not readable JSON ({brief(error)}). {DAMAGE}"
        ) from None
    if stamp.format != FORMAT:
        raise NotARecordingError(
            f"{path} was not written by fuelline (format {stamp.format!r:.40}). Nothing was read. "
            "`fuelline runs` lists what there is."
        )
    if stamp.version > RECORDING_VERSION:
        raise NewerRecordingError(
            f"{path} has recording version {stamp.version}; this fuelline reads up to "
            f"{RECORDING_VERSION}. "
            "Nothing was changed. `pip install -U fuelline` brings a version that reads it."
        )
    try:
        return decode_json(data, kind)
    except msgspec.MsgspecError as error:
        raise DamagedRecordingError(f"{path} is incomplete ({brief(error)}). {DAMAGE}") from None


def _timeline(run: RunFacts, remains: UncompactedRun) -> Timeline:
    return Timeline(
        run=run,
        tables=remains.tables,
        loaders=tuple(remains.loaders),
        processes=tuple(remains.processes),
        limits=tuple(remains.limits),
        blindspots=_with_codes(*run.blindspots, *remains.blindspots),
        source_lines=remains.source_lines,
        devices=tuple(remains.devices),
        excerpts=remains.excerpts,
    )


_FIX_FILE = re.compile(r"(\d{1,10})\.jsonl")
_MOST_FIX_BYTES = 64 * 1024 * 1024
"""A change takes a second and 500 bytes: more than a day of them."""


def read_fixes(run_dir: Path) -> list[FixEvent]:
    """What the elastic loader wrote while the job ran, each process's events in their order.

    None for a run without --fix. The files are JSON lines, the last of which may be torn.
    """
    try:
        names = list_below(run_dir, FIX_DIR)
    except OSError:
        return []
    events = []
    for name in names:
        found = _FIX_FILE.fullmatch(name)
        for line in _read_fix_file(run_dir, name).splitlines() if found else ():
            try:
                event = decode_json(line, FixEvent)
            except msgspec.DecodeError:
                continue  # cut off when the disk was full
            events.append(msgspec.structs.replace(event, pid=int(found[1]) if found else 0))
    return events


def _read_fix_file(run_dir: Path, name: str) -> bytes:
    try:
        return read_below(run_dir, f"{FIX_DIR}/{name}", _MOST_FIX_BYTES)
    except OSError:
        return b""
