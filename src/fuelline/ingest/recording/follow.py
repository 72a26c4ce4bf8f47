"""A run's folder while the job runs: each look gives what was written since the last one.

Spools appear when processes start and grow while they work. Those of trainers are read at every
look; most of the others stand still sooner or later and are then read ever less often. Nothing here
writes to the folder, and a folder that is compacted under our eyes just has nothing new any more.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.ingest.recording.folder import has_ended, locate_recording, read_run_facts
from fuelline.ingest.recording.gather import (
    damaged_frames,
    damaged_records,
    decode_note,
    dropped_records,
    find_failures,
    unlisted_blindspots,
    unreadable_spool,
)
from fuelline.ingest.recording.journal import MOST_BLINDS
from fuelline.ingest.recording.journal_tail import JournalTail
from fuelline.ingest.recording.spool_tail import SpoolTail
from fuelline.schema import wire
from fuelline.schema.diagnosis.live import RunGrowth, RunState, SpoolGrowth
from fuelline.schema.errors import InputError
from fuelline.schema.files import list_below
from fuelline.schema.run.recording import DAMAGED, RUN_FILE, SPOOL_DIR, Blindspot
from fuelline.schema.run.samples import JOURNAL_NAME, Blind
from fuelline.store.runs import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from fuelline.ingest.recording.spool import SpoolHeader
    from fuelline.ingest.recording.spool_tail import SpoolRead
    from fuelline.schema.run.samples import Row

PAST_BYTES = 32 * 1024 * 1024
"""Of the past, counted in one look."""
LONGEST_REST = 16
"""Looks that a spool may be left out which has not grown for long."""


@dataclass
class _Followed:
    tail: SpoolTail
    due: int = 0
    """Number of the look at which it is read next."""
    rest: int = 0
    """Looks until then; doubled while it does not grow."""
    is_ranked: bool = False
    is_spoiled: bool = False


class RunTail:
    """One run, from one look to the next."""

    def __init__(self, run_dir: Path, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._home = run_dir
        self._run_dir = run_dir = locate_recording(run_dir)
        self._clock = clock
        self._run = read_run_facts(run_dir)
        self._stamp = _stamp(run_dir / RUN_FILE)
        self._is_here = self._run.host == socket.gethostname()
        self._journal = JournalTail(run_dir / JOURNAL_NAME)
        self._spools: dict[str, _Followed] = {}
        self._blindspots: dict[Hashable, Blindspot] = {}
        self._left_out = 0
        self._looks = 0
        self._budget_bytes = 0
        self._newest_ns = self._run.started_ns

    def look(self) -> RunGrowth:
        """Everything that is new."""
        self._looks += 1
        self._budget_bytes = PAST_BYTES
        self._read_facts()
        self._find_spools()
        spools = list(self._look_at_spools())
        rows = self._journal.look()
        self._note_blindspots(rows)
        state = self._judge(has_grown=bool(rows) or any(spool.events for spool in spools))
        return RunGrowth(
            run=self._run,
            state=state,
            now_ns=self._clock() if state == "running" else self._newest_ns,
            spools=spools,
            rows=rows,
            blindspots=list(self._blindspots.values()),
            is_counted=self._journal.is_counted
            and all(each.tail.is_counted or each.is_spoiled for each in self._spools.values()),
        )

    def _read_facts(self) -> None:
        stamp = _stamp(self._run_dir / RUN_FILE)
        if stamp is None and self._run_dir != self._home:  # it was brought home
            self._run_dir = self._home
            stamp = _stamp(self._run_dir / RUN_FILE)
        if stamp not in {None, self._stamp}:
            self._stamp = stamp
            self._run = read_run_facts(self._run_dir)

    def _judge(self, *, has_grown: bool) -> RunState:
        if self._run.ended_ns is not None:
            return "ended"
        if not self._is_here:
            return "elsewhere"
        return "lost" if not has_grown and has_ended(self._run, self._run_dir) else "running"

    def _find_spools(self) -> None:
        folder = self._run_dir / SPOOL_DIR
        try:
            names = list_below(self._run_dir, SPOOL_DIR)
        except OSError:  # not made yet, or compacted away
            return
        for name in sorted(set(names) - self._spools.keys()):
            if name.endswith(wire.SUFFIX):
                self._spools[name] = _Followed(SpoolTail(folder / name))

    def _look_at_spools(self) -> Iterator[SpoolGrowth]:
        for name, spool in self._spools.items():
            if spool.due > self._looks or spool.is_spoiled:
                continue
            try:
                look = spool.tail.look(self._budget_bytes)
            except FileNotFoundError:  # compacted away
                continue
            except (InputError, OSError) as error:
                spool.is_spoiled = True
                self._blindspots[name] = unreadable_spool(name, error)
                continue
            if look is not None:
                self._budget_bytes -= look.counted_bytes
                self._plan_next(spool, look)
                yield self._grow(spool, look)

    def _plan_next(self, spool: _Followed, look: SpoolRead) -> None:
        """Trainers every time, for their phase; others less often the longer they stand still."""
        is_quiet = not look.events and not look.header.trainer_tid and spool.tail.is_counted
        spool.rest = min(2 * spool.rest + 1, LONGEST_REST) if is_quiet else 0
        spool.due = self._looks + 1 + spool.rest

    def _grow(self, spool: _Followed, look: SpoolRead) -> SpoolGrowth:
        header = look.header
        if look.events:
            last = look.events[-1]
            self._newest_ns = max(self._newest_ns, last.start_ns + last.dur_ns)
        if header.dropped:
            self._blindspots[header.pid, "dropped"] = dropped_records(header.pid, header.dropped)
        if spool.tail.damaged:
            damaged = damaged_records(header.pid, spool.tail.damaged)
            self._blindspots[header.pid, DAMAGED] = damaged
        for text in look.notes.blindspots:
            found = decode_note(text, Blindspot)
            if found is not None:
                self._note(found, found)
        rank = look.notes.rank
        if header.trainer_tid and self._is_here and not spool.is_ranked and rank is None:
            spool.is_ranked = True  # its environment says so before its first collective does
            rank = find_rank(header.pid, self._run_dir)
        return SpoolGrowth(
            pid=header.pid,
            phase=_read_phase(header) if self._is_here else int(wire.Phase.OUTSIDE),
            trainer_tid=header.trainer_tid,
            stopped_errno=header.stopped_errno,
            is_alive=is_alive(header.pid) if self._is_here else None,
            is_counted=spool.tail.is_counted,
            rank=rank,
            events=look.events,
            past_steps=dict(look.past_steps),
            past_batches=look.past_batches,
            workers=look.notes.workers,
        )

    def _note(self, key: Hashable, spot: Blindspot) -> None:
        """Of what the files say, as many as `gather` lists."""
        if len(self._blindspots) < MOST_BLINDS:
            self._blindspots[key] = spot
        elif key not in self._blindspots:
            self._left_out += 1
            self._blindspots["unlisted"] = unlisted_blindspots(self._left_out)

    def _note_blindspots(self, rows: list[Row]) -> None:
        for spot in (*self._run.blindspots, *find_failures(self._run_dir)):
            self._blindspots[spot] = spot
        for row in rows:
            if isinstance(row, Blind):
                spot = Blindspot(what=row.what, why=row.why, forbids=row.forbids)
                self._note(row, spot)
        if self._journal.damaged:
            self._blindspots["journal"] = damaged_frames(self._journal.damaged)


def _read_phase(header: SpoolHeader) -> int:
    """The `wire.Phase` of a trainer that lives here; outside of all if it has ended."""
    outside = int(wire.Phase.OUTSIDE)
    if not header.live_fd:
        return outside
    try:
        fd = wire.open_live(header.pid, header.live_fd - 1)
    except OSError:  # it has ended, or is another user's
        return outside
    try:
        return int.from_bytes(os.pread(fd, wire.WORD.size, wire.PHASE_OFFSET), "little")
    finally:
        os.close(fd)


def find_rank(pid: int, run_dir: Path, proc: Path = Path("/proc")) -> int | None:
    """The rank of a process that lives here, by its environment; None if that does not say.

    A pid may be another process's by now: the environment has to name this run as well.
    """
    try:
        words = (proc / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:  # another user's, or it has ended
        return None
    values = dict(word.partition(b"=")[::2] for word in words)
    rank = values.get(b"RANK", b"")
    is_ours = values.get(wire.RUN_DIR_VARIABLE.encode()) == os.fsencode(run_dir.absolute())
    return int(rank) if is_ours and rank.isdigit() and len(rank) < _MOST_DIGITS else None


_MOST_DIGITS = 10
"""Of a rank; a longer one is none, and Python refuses to read numbers of thousands."""


def _stamp(path: Path) -> tuple[int, int] | None:
    """Changes when a file is replaced; None if it is not there."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
