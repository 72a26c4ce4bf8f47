"""The raw remains of a run in (spools, journal), the tables of a Timeline out.

Nothing here fails on one bad file: what cannot be read is a Blindspot, the rest is kept. Only a
file of a newer version stops it, as nobody knows what that one changes for the others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from fuelline.ingest.recording.excerpts import (
    Pace,
    choose_excerpts,
    fold_limits,
    fold_tables,
    has_too_many,
    state_excerpts,
)
from fuelline.ingest.recording.journal import MOST_BLINDS, read_journal
from fuelline.ingest.recording.spool import LONGEST_NS, count_records, read_moments, read_spool
from fuelline.ingest.recording.thinning import state_joined
from fuelline.schema import wire
from fuelline.schema.errors import InputError, NewerRecordingError
from fuelline.schema.files import list_below, read_below
from fuelline.schema.foreign import decode_json
from fuelline.schema.run import samples
from fuelline.schema.run.recording import DAMAGED, SPOOL_DIR, Blindspot, LoaderFacts, ProcessFacts
from fuelline.timeline.tables import empty_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fuelline.ingest.recording.spool import SpoolContent
    from fuelline.schema.run.recording import Excerpts, RunFacts


SLACK_NS = 5 * 10**9
"""How far from the run a record may lie: a worker that outlives the job ends its last fetch."""
LATE_WRITE_NS = 120 * 10**9
"""How much older than its newest record a spool may look: those before version 2 were mapped, and
Linux notes the change of a page when it is written to disk, within 35 s by default
(vm.dirty_expire_centisecs)."""
_MOST_NOTE_BYTES = 64 * 1024
_MOST_NOTES = 100
"""Processes that say why something of ours could not be put into them; a job of many says it once
in each."""
MOST_BEGUN = 1_000
"""Imports of a process; hooks write a tenth of that."""
_TOTALS = "totals over the whole run for that process"
MOST_LOADERS = 5_000
"""Whose settings are kept, the first: a job may make a loader for every step."""
MOST_LINES = 200
"""Of source code that a recording carries: those that were seen most often."""
_FRAME = re.compile(r"^.*? \((?P<place>.*:\d+)\)$", re.DOTALL)
"""`function (file:line)`, as py-spy prints it."""


@dataclass
class UncompactedRun:
    """What could be read of a run that was not compacted yet."""

    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    loaders: list[LoaderFacts] = field(default_factory=list)
    processes: list[ProcessFacts] = field(default_factory=list)
    limits: list[samples.Limits] = field(default_factory=list)
    blindspots: list[Blindspot] = field(default_factory=list)
    devices: list[samples.DeviceSeen] = field(default_factory=list)
    excerpts: Excerpts | None = None
    """What was kept, if there was too much to keep it all."""
    source_lines: dict[str, str] = field(default_factory=dict)
    is_damaged: bool = False
    """Whether a file holds more than could be read of it, so that it must not be deleted."""
    left_out: int = 0
    """Blindspots beyond `MOST_BLINDS`."""
    loaders_left_out: int = 0
    """Those beyond `MOST_LOADERS`."""
    _noted: set[Blindspot] = field(default_factory=set)

    def note(self, found: Blindspot | None) -> None:
        """Add what files report: every worker reports the same refusal, and once is enough."""
        if found is None or found in self._noted:
            return
        if len(self._noted) == MOST_BLINDS:
            self.left_out += 1
            return
        self._noted.add(found)
        self.blindspots.append(found)


class _ProcessNote(msgspec.Struct):
    framework: str = ""
    version: str = ""
    threads: int | None = None
    step_frames: list[str] = []
    begun: list[tuple[int, str]] = []


_NOTES = (wire.Kind.PROCESS, wire.Kind.SOURCE, wire.Kind.BLINDSPOT, wire.Kind.RANK)
"""Records that are facts about a process, not something that took time."""


_LEFT_NOTES = {
    "hooks": ("the steps of", "anything about that process"),
    "remedies": ("the remedies in", "knowing that --fix, --cache or --packed did anything there"),
}
"""What a note is about, by its name, and what it forbids to say."""


def gather(run_dir: Path, run: RunFacts | None = None) -> UncompactedRun:
    """Read all spools and the observer's journal of a run; nothing happened after it had ended.

    Raises NewerRecordingError if a spool is of a newer version: half a run would be misread.
    """
    remains = UncompactedRun()
    within_ns = None if run is None else _bound(run, run_dir)
    paths = _list_spools(run_dir / SPOOL_DIR, remains)
    if run is not None:
        wall_offset_ns = run.started_wall_ns - run.started_ns
        remains.excerpts = choose_excerpts(_find_pace(paths, within_ns), wall_offset_ns)
    _gather_spools(paths, remains, within_ns)
    _gather_journal(run_dir, remains)
    remains.blindspots += find_failures(run_dir)
    if remains.left_out:
        remains.blindspots.append(unlisted_blindspots(remains.left_out))
    if remains.loaders_left_out:
        remains.blindspots.append(_unlisted_loaders(remains.loaders_left_out))
    ended_ns = None if run is None else run.ended_ns
    if remains.excerpts is not None:
        remains.tables = fold_tables(remains.tables, remains.excerpts)
        remains.limits = fold_limits(remains.limits, remains.excerpts)
        remains.blindspots.append(state_excerpts(remains.excerpts))
        ended_ns = None if ended_ns is None else remains.excerpts.fold(ended_ns)
    if ended_ns is not None:
        events = remains.tables["events"]
        remains.tables["events"] = events.filter(pl.col("start_ns") <= ended_ns)
    return remains


def _find_pace(paths: list[Path], within_ns: tuple[int, int] | None) -> Pace:
    """How many records there are, before any is read."""
    counts = {path: count_records(path) for path in paths}
    busiest = max(counts, key=lambda path: counts[path], default=None)
    moments_ns: list[int] = []
    if busiest is not None and has_too_many(counts.values()):
        try:
            moments_ns = read_moments(busiest)
        except OSError:
            pass  # reading it will say why
    first_ns, last_ns = within_ns or (0, 2**63)
    return Pace(
        most=max(counts.values(), default=0),
        together=sum(counts.values()),
        moments_ns=[each for each in moments_ns if first_ns <= each <= last_ns],
    )


def _bound(run: RunFacts, run_dir: Path) -> tuple[int, int]:
    """The first and the last moment at which something of this run can have happened."""
    if run.ended_ns is not None:
        return run.started_ns - SLACK_NS, run.ended_ns + SLACK_NS
    written_ns = find_last_write(run_dir) or 0
    lasted_ns = written_ns - run.started_wall_ns
    if lasted_ns < 0:  # somebody has set the wall clock back
        lasted_ns = LONGEST_NS
    return run.started_ns - SLACK_NS, run.started_ns + lasted_ns + LATE_WRITE_NS


def find_last_write(run_dir: Path) -> int | None:
    """The newest change of a raw file, by the wall clock; None if there is none."""
    paths = [run_dir / samples.JOURNAL_NAME, *(run_dir / SPOOL_DIR).glob("*")]
    return max((found for path in paths if (found := _changed_ns(path)) is not None), default=None)


def _changed_ns(path: Path) -> int | None:
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return None


def find_failures(run_dir: Path) -> list[Blindspot]:
    """Processes into which something of ours could not be put leave a note instead."""
    found = [match for name in list_below(run_dir) if (match := _NOTE_NAME.fullmatch(name))]
    return [
        Blindspot(
            what=f"{_LEFT_NOTES[note['part']][0]} process {note['pid']}",
            why=_read_note(run_dir, note[0]),
            forbids=_LEFT_NOTES[note["part"]][1],
        )
        for note in found[:_MOST_NOTES]
    ]


_NOTE_NAME = re.compile(rf"(?P<part>{'|'.join(_LEFT_NOTES)})-failed-(?P<pid>\d+)\.txt")


def _read_note(run_dir: Path, name: str) -> str:
    try:
        return read_below(run_dir, name, _MOST_NOTE_BYTES).decode(errors="replace")[:300].strip()
    except OSError as error:
        return f"{name}: {error.strerror}"


def _gather_spools(
    paths: list[Path], remains: UncompactedRun, within_ns: tuple[int, int] | None
) -> None:
    frames: dict[int, list[pl.DataFrame]] = {}
    for path in paths:
        try:
            content = read_spool(path, within_ns, remains.excerpts)
        except NewerRecordingError:
            raise
        except (InputError, OSError) as error:
            remains.is_damaged = True
            remains.note(unreadable_spool(path.name, error))
            continue
        if content is not None:
            events = content.events.filter(~pl.col("kind").is_in(_NOTES))
            frames.setdefault(content.pid, []).append(events)
            _note_process(content, remains)
            _note_damage(path, content, remains)
    # Process by process: to sort all events at once takes twice their memory.
    in_order = [pl.concat(frames.pop(pid)).sort("tid", "start_ns") for pid in sorted(frames)]
    remains.tables["events"] = pl.concat([empty_table("events"), *in_order])


def _list_spools(folder: Path, remains: UncompactedRun) -> list[Path]:
    try:
        names = list_below(folder.parent, folder.name)
        return [folder / name for name in names if name.endswith(wire.SUFFIX)]
    except FileNotFoundError:  # compacted, or the job never loaded its framework
        return []
    except OSError as error:
        remains.is_damaged = True
        remains.blindspots.append(unreadable_spool(f"folder {folder}", error))
        return []


def _note_process(content: SpoolContent, remains: UncompactedRun) -> None:
    """Turn the texts of one spool into facts: process, loaders, blindspots."""
    note = _ProcessNote()
    step_frames: list[str] = []
    begun: list[tuple[int, str]] = []
    rank: tuple[int | None, int | None] = (None, None)
    notes = content.events.filter(pl.col("kind").is_in(_NOTES))

    @cache
    def decode(text_id: int, noun: type[Any]) -> Any:
        """Once, however many records name it."""
        return decode_note(content.texts.get(text_id), noun)

    backend = ""
    for kind, first, second, fourth in notes.select("kind", "a", "b", "d").iter_rows():
        if kind == wire.Kind.PROCESS:
            note = decode(first, _ProcessNote) or note
            step_frames, begun = note.step_frames or step_frames, note.begun or begun
        elif kind == wire.Kind.RANK:
            rank = first, second
            backend = content.texts.get(fourth, "")
        elif kind == wire.Kind.SOURCE and len(remains.loaders) == MOST_LOADERS:
            remains.loaders_left_out += 1
        elif kind == wire.Kind.SOURCE:
            facts = decode(second, LoaderFacts) or LoaderFacts()
            remains.loaders.append(msgspec.structs.replace(facts, pid=content.pid, loader_id=first))
        else:
            remains.note(decode(first, Blindspot))
    if content.dropped:
        remains.note(dropped_records(content.pid, content.dropped))
    if content.damaged:
        remains.note(damaged_records(content.pid, content.damaged))
    remains.processes.append(
        ProcessFacts(
            pid=content.pid,
            ppid=content.ppid,
            created_ns=content.created_ns,
            records=content.records,
            dropped=content.dropped,
            faults=content.faults,
            framework=note.framework,
            version=note.version,
            threads=note.threads,
            step_frames=step_frames,
            begun=begun[:MOST_BEGUN],
            rank=rank[0],
            ranks=rank[1],
            backend=backend,
        )
    )


def _note_damage(path: Path, content: SpoolContent, remains: UncompactedRun) -> None:
    remains.is_damaged |= bool(content.damaged) or content.is_cut
    if content.is_cut:
        remains.note(cut_spool(path))


def unreadable_spool(name: str, error: Exception) -> Blindspot:
    """What a spool costs that cannot be read."""
    why = error.strerror if isinstance(error, OSError) else None
    return Blindspot(
        what=f"the spool {name}",
        why=why or str(error),
        forbids="anything about that process",
        code=DAMAGED,
    )


def cut_spool(path: Path) -> Blindspot:
    """What a spool costs whose end is missing."""
    return Blindspot(
        what=f"the spool {path.name} to its end",
        why=f"it was cut short: the recorder had written more than its {path.stat().st_size} bytes",
        forbids=_TOTALS,
        code=DAMAGED,
    )


def dropped_records(pid: int, number: int) -> Blindspot:
    """What records cost that were not written."""
    return Blindspot(
        what=f"{number} records of process {pid}",
        why="dropped: the spool reached its cap or its disk was full",
        forbids=_TOTALS,
    )


def damaged_records(pid: int, number: int) -> Blindspot:
    """What records cost that cannot be believed."""
    return Blindspot(
        what=f"{number} records of process {pid}",
        why="damaged: they are outside the run's time or of an unknown kind",
        forbids=_TOTALS,
        code=DAMAGED,
    )


def damaged_frames(number: int) -> Blindspot:
    """What damage in the journal costs."""
    return Blindspot(
        what=f"{number} frames of the observer's journal",
        why=f"damaged: their checksum in {samples.JOURNAL_NAME} is wrong",
        forbids="what the observer saw in those seconds",
        code=DAMAGED,
    )


def decode_note(text: str | None, kind: type[Any]) -> Any:
    """A text of a spool as what its JSON says; None if it is not that."""
    if text is None:
        return None
    try:
        return decode_json(text, kind)
    except msgspec.MsgspecError:
        return None


def _gather_journal(run_dir: Path, remains: UncompactedRun) -> None:
    journal = read_journal(run_dir)
    if not journal.has_rows:
        remains.blindspots.append(
            Blindspot(
                what="thread states, host and cgroup counters",
                why=journal.problem or "the observer left nothing behind",
                forbids="separating slow storage from slow CPU, and any cause outside the job",
            )
        )
    remains.is_damaged |= journal.problem is not None or bool(journal.impossible)
    if journal.damaged:
        remains.blindspots.append(damaged_frames(journal.damaged))
    remains.tables |= {name: table.frame() for name, table in journal.tables.items()}
    for name, number in journal.impossible.items():
        remains.blindspots.append(impossible_rows(name, number))
    remains.source_lines = choose_lines(remains.tables["stacks"], journal.lines)
    remains.limits = journal.limits
    remains.devices = list(journal.devices.values())
    for blind in journal.blinds:
        remains.note(Blindspot(what=blind.what, why=blind.why, forbids=blind.forbids))
    remains.left_out += journal.blinds_left_out
    remains.blindspots += state_joined(journal.tables.values())


def unlisted_blindspots(number: int) -> Blindspot:
    """What those cost that are not listed one by one."""
    return Blindspot(
        what=f"{number:,} more things that the run's files say could not be seen",
        why=f"no recorder reports more than {MOST_BLINDS:,}: the files are damaged or made up",
        forbids="calling this recording complete",
    )


def _unlisted_loaders(number: int) -> Blindspot:
    return Blindspot(
        what=f"the settings of {number:,} more loaders",
        why=f"those of {MOST_LOADERS:,} are kept, the first that the job made",
        forbids="advice on a training loader that is among the others",
    )


def impossible_rows(name: str, number: int) -> Blindspot:
    """What rows cost that the observer cannot have written: damage that a checksum was made for."""
    return Blindspot(
        what=f"{number} rows of the observer's journal ({name})",
        why="damaged: values are missing or out of range",
        forbids="what the observer saw at those moments",
        code=DAMAGED,
    )


def choose_lines(stacks: pl.DataFrame, texts: Mapping[str, str]) -> dict[str, str]:
    """Map `file:line` to source text for the frames that were seen most often."""
    frequent = (
        stacks.select("frames", "count")
        .explode("frames")
        .group_by("frames")
        .agg(pl.col("count").sum())
        .sort("count", "frames", descending=[True, False])
    )
    chosen: dict[str, str] = {}
    for frame in frequent["frames"].drop_nulls() if texts else ():
        found = _FRAME.match(frame)
        if found and found["place"] in texts and len(chosen) < MOST_LINES:
            chosen[found["place"]] = texts[found["place"]]
    return chosen
