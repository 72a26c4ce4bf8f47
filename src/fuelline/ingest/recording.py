"""Our own recording as a Timeline: compacted, raw, crashed or copied from elsewhere.

A run starts as spools and a journal. Compaction turns them into Parquet tables, writes the manifest
last and only then deletes the raw files, so that at every moment one of the two is whole. A run
that cannot be compacted (full disk, read-only copy) is read raw.
"""

from __future__ import annotations

import fcntl
import io
import shutil
import socket
import time
import zlib
from pathlib import Path
from typing import TypeVar

import msgspec
import polars as pl

from fuelline.ingest.gather import Remains, find_last_write, gather
from fuelline.ingest.source import read_source_lines
from fuelline.schema.errors import DamagedRecordingError, NewerRecordingError, NotARecordingError
from fuelline.schema.files import write_whole
from fuelline.schema.recording import (
    FORMAT,
    MANIFEST_FILE,
    RECORDING_VERSION,
    RUN_FILE,
    SPOOL_DIR,
    WHOLE_VERSION,
    Manifest,
    RunFacts,
    TableFacts,
)
from fuelline.schema.samples import JOURNAL_NAME
from fuelline.timeline import Timeline
from fuelline.timeline.tables import TABLES

LEFT_NS = 3600 * 10**9
"""A run of another host is over if nothing was written for so long: its observer writes every
second, and clocks of hosts that share a folder differ by minutes at worst."""


class _Stamp(msgspec.Struct):
    """The part of run.json and manifest.json that every version will have."""

    format: str = ""
    version: int = 0


def read_recording(run_dir: Path) -> Timeline:
    """Read a run, and compact it on the way if it has ended and was not compacted yet."""
    if not (run_dir / RUN_FILE).exists() or not has_ended(read_run_facts(run_dir), run_dir):
        return load_recording(run_dir)  # compacted elsewhere, still being written, or no run
    try:
        return compact_recording(run_dir)
    except OSError:
        return load_recording(run_dir)  # no room, or a read-only copy: the raw files serve as well


def load_recording(run_dir: Path) -> Timeline:
    """Read a run as it is and leave it alone."""
    if not run_dir.is_dir():
        raise NotARecordingError(
            f"{run_dir} is not a folder. Nothing was read. `fuelline run train.py` makes a "
            f"recording."
        )
    if (run_dir / MANIFEST_FILE).exists():
        return _load_compacted(run_dir)
    run = read_run_facts(run_dir)
    remains = _gather(run_dir, run)
    return _timeline(run, remains, read_source_lines(remains.tables["stacks"]))


def has_ended(run: RunFacts, run_dir: Path) -> bool:
    """Whether nobody writes to this run any more, also if its launcher was killed.

    Of another host, or of a container with a name of its own, no process can be seen here: its run
    goes on until nobody has written to it for long.
    """
    if run.ended_ns is not None:
        return True
    if run.host != socket.gethostname():
        written_ns = find_last_write(run_dir)
        return written_ns is not None and time.time_ns() - written_ns > LEFT_NS
    writers = {path.name.partition("-")[0] for path in (run_dir / SPOOL_DIR).glob("*")}
    # A job that has not loaded its framework yet has no spool, but it has a launcher.
    return not any(Path(f"/proc/{pid}").exists() for pid in {*writers, run.launcher_pid})


def compact_recording(run_dir: Path) -> Timeline:
    """Turn the raw files of an ended run into tables and a manifest; returns the Timeline.

    Raises OSError if there is no room; the raw files are then still there. They also stay, and are
    read again the next time, if they hold more than could be read.
    """
    if (run_dir / MANIFEST_FILE).exists():
        return _load_compacted(run_dir)
    run = read_run_facts(run_dir)
    with (run_dir / RUN_FILE).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two readers at once: the second finds it done
        if (run_dir / MANIFEST_FILE).exists():
            return _load_compacted(run_dir)
        return _compact(run_dir, run)


def _compact(run_dir: Path, run: RunFacts) -> Timeline:
    remains = _gather(run_dir, run)
    lines = read_source_lines(remains.tables["stacks"])
    if remains.is_damaged:
        return _timeline(run, remains, lines)
    tables = {
        name: _write_table(run_dir / f"{name}.parquet", frame)
        for name, frame in remains.tables.items()
    }
    manifest = Manifest(
        run=run,
        loaders=remains.loaders,
        processes=remains.processes,
        blindspots=remains.blindspots,
        limits=remains.limits,
        source_lines=lines,
        tables=tables,
        devices=remains.devices,
        version=WHOLE_VERSION if remains.excerpts is None else RECORDING_VERSION,
        excerpts=remains.excerpts,
    )
    write_atomically(run_dir / MANIFEST_FILE, msgspec.json.format(msgspec.json.encode(manifest)))
    shutil.rmtree(run_dir / SPOOL_DIR, ignore_errors=True)
    (run_dir / JOURNAL_NAME).unlink(missing_ok=True)
    return _timeline(run, remains, lines)


def _gather(run_dir: Path, run: RunFacts) -> Remains:
    """What the raw files hold; tables without them and without a manifest must not be replaced."""
    has_raw = (run_dir / SPOOL_DIR).exists() or (run_dir / JOURNAL_NAME).exists()
    tables = sorted(path.name for path in run_dir.glob("*.parquet"))
    if tables and not has_raw:
        raise DamagedRecordingError(
            f"{run_dir / MANIFEST_FILE} is missing, which says what is in {tables[0]} and the "
            f"other tables. {DAMAGE}"
        )
    return gather(run_dir, run)


def write_atomically(path: Path, data: bytes) -> None:
    """Write all of it or nothing: a reader never sees half a file."""
    with write_whole(path) as file:
        file.write(data)


def _write_table(path: Path, frame: pl.DataFrame) -> TableFacts:
    # Through memory: polars takes no path that is not UTF-8.
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", compression_level=9, statistics=False)
    data = buffer.getvalue()
    write_atomically(path, data)
    return TableFacts(rows=frame.height, size_bytes=len(data), crc32=zlib.crc32(data))


def read_run_facts(run_dir: Path) -> RunFacts:
    """What run.json says; the launcher writes it again when the job has ended."""
    path = run_dir / RUN_FILE
    if not path.exists():
        raise NotARecordingError(
            f"{run_dir} holds no {RUN_FILE} or {MANIFEST_FILE}, so it is not a recording. "
            f"Nothing was read. "
            "`fuelline runs` lists what there is."
        )
    return _decode(path, RunFacts)


def read_manifest(run_dir: Path) -> Manifest:
    """The table of contents of a run that is whole."""
    if not (run_dir / MANIFEST_FILE).exists():
        raise NotARecordingError(
            f"{run_dir} holds no {MANIFEST_FILE}. Nothing was read. `fuelline runs` lists what "
            "there is."
        )
    return _decode(run_dir / MANIFEST_FILE, Manifest)


def _load_compacted(run_dir: Path) -> Timeline:
    manifest = read_manifest(run_dir)
    tables = {
        name: _read_table(run_dir / f"{name}.parquet", facts)
        for name, facts in manifest.tables.items()
        if name in TABLES
    }
    return Timeline(
        run=manifest.run,
        tables=tables,
        loaders=tuple(manifest.loaders),
        processes=tuple(manifest.processes),
        limits=tuple(manifest.limits),
        blindspots=(*manifest.run.blindspots, *manifest.blindspots),
        source_lines=manifest.source_lines,
        devices=tuple(manifest.devices),
        excerpts=manifest.excerpts,
    )


def _read_table(path: Path, facts: TableFacts) -> pl.DataFrame:
    data = _read_bytes(path)
    if len(data) != facts.size_bytes or zlib.crc32(data) != facts.crc32:
        raise DamagedRecordingError(
            f"{path} was altered or cut short: {len(data)} bytes of {facts.size_bytes}, "
            f"checksum {zlib.crc32(data):08x} instead of {facts.crc32:08x}. {DAMAGE}"
        )
    frame = pl.read_parquet(data)
    columns = TABLES[path.stem]
    if not set(frame.columns) <= set(columns):
        raise DamagedRecordingError(f"{path} has unknown columns {sorted(frame.columns)}. {DAMAGE}")
    added = [
        pl.lit(None, kind).alias(name)
        for name, kind in columns.items()
        if name not in frame.columns
    ]
    return frame.with_columns(added).select(*columns)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DamagedRecordingError(f"{path}: {error.strerror}. {DAMAGE}") from None


DAMAGE = (
    "The run cannot be diagnosed from this copy, and nothing was changed. Copy the folder again, "
    "or record again with `fuelline run`."
)
_T = TypeVar("_T", RunFacts, Manifest)


def _decode(path: Path, kind: type[_T]) -> _T:
    data = _read_bytes(path)
    try:
        stamp = msgspec.json.decode(data, type=_Stamp)
    except msgspec.MsgspecError as error:
        raise DamagedRecordingError(f"{path} is not readable JSON ({error}). {DAMAGE}") from None
    if stamp.format != FORMAT:
        raise NotARecordingError(
            f"{path} was not written by fuelline (format {stamp.format!r}). Nothing was read. "
            "`fuelline runs` lists what there is."
        )
    if stamp.version > RECORDING_VERSION:
        raise NewerRecordingError(
            f"{path} has recording version {stamp.version}; this fuelline reads up to "
            f"{RECORDING_VERSION}. "
            "Nothing was changed. `pip install -U fuelline` brings a version that reads it."
        )
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise DamagedRecordingError(f"{path} lacks something ({error}). {DAMAGE}") from None


def _timeline(run: RunFacts, remains: Remains, lines: dict[str, str]) -> Timeline:
    return Timeline(
        run=run,
        tables=remains.tables,
        loaders=tuple(remains.loaders),
        processes=tuple(remains.processes),
        limits=tuple(remains.limits),
        blindspots=(*run.blindspots, *remains.blindspots),
        source_lines=lines,
        devices=tuple(remains.devices),
        excerpts=remains.excerpts,
    )
