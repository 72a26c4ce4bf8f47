"""The raw remains of a run in (spools, journal), the tables of a Timeline out.

Nothing here fails on one bad file: what cannot be read is a Blindspot, the rest is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from fuelline.schema import samples, wire
from fuelline.schema.errors import InputError
from fuelline.schema.journal import decode_frames
from fuelline.schema.recording import SPOOL_DIR, Blindspot, LoaderFacts, ProcessFacts
from fuelline.timeline.tables import TABLES, empty_table

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.ingest.spool import SpoolContent

from fuelline.ingest.spool import read_spool


@dataclass
class Remains:
    """What could be read of a run that was not compacted yet."""

    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    loaders: list[LoaderFacts] = field(default_factory=list)
    processes: list[ProcessFacts] = field(default_factory=list)
    limits: list[samples.Limits] = field(default_factory=list)
    blindspots: list[Blindspot] = field(default_factory=list)
    devices: list[samples.DeviceSeen] = field(default_factory=list)


class _ProcessNote(msgspec.Struct):
    framework: str = ""
    version: str = ""
    threads: int | None = None


_NOTES = (wire.Kind.PROCESS, wire.Kind.LOADER, wire.Kind.BLINDSPOT, wire.Kind.RANK)
"""Records that are facts about a process, not something that took time."""


_LEFT_NOTES = {
    "hooks": ("the steps of", "anything about that process"),
    "remedies": ("the remedies in", "that --fix, --cache or --packed did anything there"),
}
"""What a note is about, by its name, and what it forbids to say."""


def gather(run_dir: Path, ended_ns: int | None = None) -> Remains:
    """Read all spools and the observer's journal of a run; nothing happened after it had ended."""
    remains = Remains()
    _gather_spools(run_dir / SPOOL_DIR, remains)
    _gather_journal(run_dir / samples.JOURNAL_NAME, remains)
    remains.blindspots += find_failures(run_dir)
    if ended_ns is not None:
        events = remains.tables["events"]
        remains.tables["events"] = events.filter(pl.col("start_ns") <= ended_ns)
    return remains


def find_failures(run_dir: Path) -> list[Blindspot]:
    """Processes into which something of ours could not be put leave a note instead."""
    return [
        Blindspot(
            what=f"{what} process {note.stem.rpartition('-')[2]}",
            why=note.read_text(errors="replace")[:300].strip(),
            forbids=forbids,
        )
        for part, (what, forbids) in _LEFT_NOTES.items()
        for note in sorted(run_dir.glob(f"{part}-failed-*.txt"))
    ]


def _gather_spools(folder: Path, remains: Remains) -> None:
    frames = [empty_table("events")]
    for path in sorted(folder.glob(f"*{wire.SUFFIX}")) if folder.is_dir() else []:
        try:
            content = read_spool(path)
        except (InputError, OSError) as error:
            remains.blindspots.append(unreadable_spool(path.name, error))
            continue
        if content is not None:
            frames.append(content.events)
            _note_process(content, remains)
    events = pl.concat(frames).filter(~pl.col("kind").is_in(_NOTES))
    remains.tables["events"] = events.sort("pid", "tid", "start_ns")


def _note_process(content: SpoolContent, remains: Remains) -> None:
    """Turn the texts of one spool into facts: process, loaders, blindspots."""
    note = _ProcessNote()
    rank: tuple[int | None, int | None] = (None, None)
    notes = content.events.filter(pl.col("kind").is_in(_NOTES))
    for kind, first, second in notes.select("kind", "a", "b").iter_rows():
        if kind == wire.Kind.PROCESS:
            note = decode_note(content.texts.get(first), _ProcessNote) or note
        elif kind == wire.Kind.RANK:
            rank = first, second
        elif kind == wire.Kind.LOADER:
            facts = decode_note(content.texts.get(second), LoaderFacts) or LoaderFacts()
            remains.loaders.append(msgspec.structs.replace(facts, pid=content.pid, loader_id=first))
        else:
            _append_new(remains.blindspots, decode_note(content.texts.get(first), Blindspot))
    for number, what in ((content.dropped, "dropped"), (content.damaged, "damaged")):
        if number:
            remains.blindspots.append(lost_records(content.pid, number, what))
    remains.processes.append(
        ProcessFacts(
            pid=content.pid,
            ppid=content.ppid,
            created_ns=content.created_ns,
            records=content.events.height,
            dropped=content.dropped,
            faults=content.faults,
            framework=note.framework,
            version=note.version,
            threads=note.threads,
            rank=rank[0],
            ranks=rank[1],
        )
    )


def unreadable_spool(name: str, error: Exception) -> Blindspot:
    """What a spool costs that cannot be read."""
    return Blindspot(
        what=f"the spool {name}", why=str(error), forbids="anything about that process"
    )


def lost_records(pid: int, number: int, what: str) -> Blindspot:
    """What records cost that were `dropped` or are `damaged`."""
    reasons = {
        "dropped": "the spool reached its cap or its disk was full",
        "damaged": "the records cannot have been written by the recorder",
    }
    return Blindspot(
        what=f"{number} records of process {pid}",
        why=f"{what}: {reasons[what]}",
        forbids="totals over the whole run for that process",
    )


def damaged_frames(number: int) -> Blindspot:
    """What damage in the journal costs."""
    return Blindspot(
        what=f"{number} frames of the observer's journal",
        why="their checksum is wrong",
        forbids="what the observer saw in those seconds",
    )


def decode_note(text: str | None, kind: type[Any]) -> Any:
    """A text of a spool as what its JSON says; None if it is not that."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError:
        return None


def _append_new(blindspots: list[Blindspot], found: Blindspot | None) -> None:
    """Every worker reports the same refusal; once is enough."""
    if found is not None and found not in blindspots:
        blindspots.append(found)


def _gather_journal(path: Path, remains: Remains) -> None:
    rows: list[samples.Row] = []
    if path.exists():
        decoded = decode_frames(path.read_bytes())
        rows = decoded.rows
        if decoded.damaged:
            remains.blindspots.append(damaged_frames(decoded.damaged))
    if not rows:
        remains.blindspots.append(
            Blindspot(
                what="thread states, host and cgroup counters",
                why="the observer left nothing behind",
                forbids="telling slow storage from slow CPU, and any cause outside the job",
            )
        )
    by_kind: dict[type[msgspec.Struct], list[Any]] = {}
    for row in rows:
        by_kind.setdefault(type(row), []).append(row)
    for name, kind in _ROW_TABLES.items():
        remains.tables[name] = _frame(name, by_kind.get(kind, []))
    remains.tables["host"] = _host_frame(by_kind.get(samples.HostSample, []))
    remains.tables["devices"] = _device_frame(by_kind.get(samples.DeviceSample, []))
    remains.limits = by_kind.get(samples.Limits, [])
    last_seen = {row.device: row for row in by_kind.get(samples.DeviceSeen, [])}
    remains.devices = list(last_seen.values())
    for blind in by_kind.get(samples.Blind, []):
        spot = Blindspot(what=blind.what, why=blind.why, forbids=blind.forbids)
        _append_new(remains.blindspots, spot)


_ROW_TABLES: dict[str, type[msgspec.Struct]] = {
    "states": samples.ThreadState,
    "places": samples.Place,
    "clocks": samples.ThreadClock,
    "processes": samples.ProcessClock,
    "seen": samples.ProcessSeen,
    "stacks": samples.StackSample,
    "others": samples.OtherProcess,
    "device_processes": samples.DeviceProcess,
}


def _frame(name: str, rows: list[Any]) -> pl.DataFrame:
    return _columns(name, [msgspec.structs.astuple(row) for row in rows])


def _host_frame(rows: list[samples.HostSample]) -> pl.DataFrame:
    cells = [(row.at_ns, name, float(value)) for row in rows for name, value in row.values.items()]
    return _columns("host", cells)


def _device_frame(rows: list[samples.DeviceSample]) -> pl.DataFrame:
    cells = [
        (row.at_ns, row.device, name, float(value))
        for row in rows
        for name, value in row.values.items()
    ]
    return _columns("devices", cells)


def _columns(name: str, cells: list[tuple[Any, ...]]) -> pl.DataFrame:
    """Rows to columns; handing polars whole columns is ten times as fast as rows."""
    if not cells:
        return empty_table(name)
    kinds = TABLES[name].items()
    columns = zip(*cells, strict=True)
    return pl.DataFrame(
        [
            pl.Series(column, values, kind)
            for (column, kind), values in zip(kinds, columns, strict=True)
        ]
    )
