"""The data's path, top to bottom: recording -> timeline -> signals -> diagnosis -> report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fuelline.diagnose import cannot_tell, diagnose
from fuelline.ingest import RunTail, read_last, read_recording
from fuelline.report import render_terminal, write_document
from fuelline.schema.findings import Diagnosis, RunSummary
from fuelline.schema.names import encodable
from fuelline.schema.recording import MANIFEST_FILE, Blindspot
from fuelline.signals import measure
from fuelline.signals.live import LiveRun
from fuelline.timeline.tiles import cut_tiles
from fuelline.timeline.trainer import find_trainer

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

    from fuelline.schema.live import RunGrowth, Snapshot
    from fuelline.timeline import Timeline
    from fuelline.timeline.trainer import Trainer


def diagnose_run(run_dir: Path, price: float | None = None) -> Diagnosis:
    """Read a run, compacting it on the way if it has ended, and diagnose it."""
    timeline = read_recording(run_dir)
    summary = _summarise(timeline, run_dir)
    trainer = find_trainer(timeline)
    blindspots = [*timeline.blindspots, *_structural_blindspots(timeline, trainer)]
    tiling = cut_tiles(timeline, trainer) if trainer is not None else None
    if trainer is None or tiling is None:
        return cannot_tell(summary, blindspots, _why_no_steps(timeline, trainer), price)
    return diagnose(measure(timeline, trainer, tiling), summary, blindspots, price)


def diagnose_as_json(run_dir: Path, price: float | None = None) -> str:
    """The contract of `diagnose --json`."""
    return msgspec.json.format(msgspec.json.encode(diagnose_run(run_dir, price))).decode()


def show_report(run_dir: Path, *, price: float | None, stream: TextIO) -> None:
    """The diagnosis for people."""
    render_terminal(write_document(diagnose_run(run_dir, price)), stream)


class Watch:
    """A running job from one look to the next: growth of its folder -> state -> snapshot."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._tail: RunTail | None = None
        growth = self._grow()
        self._live = LiveRun(growth)
        self._is_counted = growth.is_counted

    def look(self) -> None:
        """Take in what is new."""
        if self._tail is not None:
            was_live = self._tail
            growth = self._grow()
            if self._tail is was_live:
                self._live.add(growth)
            else:  # compacted since: the tables have the end that we may have missed
                self._live = LiveRun(growth)
            self._is_counted = growth.is_counted

    def look_at_all(self) -> None:
        """Take in all that was written before the first look, too."""
        while not self._is_counted:
            self.look()

    def snapshot(self, *, workers: bool) -> Snapshot:
        """What is known by now."""
        return self._live.snapshot(workers=workers)

    def _grow(self) -> RunGrowth:
        if (self.run_dir / MANIFEST_FILE).exists():
            self._tail = None
            return read_last(self.run_dir)
        self._tail = self._tail or RunTail(self.run_dir)
        return self._tail.look()


def _summarise(timeline: Timeline, run_dir: Path) -> RunSummary:
    run = timeline.run
    return RunSummary(
        run_id=run.run_id,
        command=run.command,
        host=run.host,
        exit_code=run.exit_code,
        seconds=None if run.ended_ns is None else (run.ended_ns - run.started_ns) / 1e9,
        path=encodable(str(run_dir)),
    )


def _why_no_steps(timeline: Timeline, trainer: Trainer | None) -> str:
    if trainer is not None:
        return "fewer than two steps were seen. Record a longer stretch of training."
    if not timeline.processes:
        return (
            "no process of the job loaded PyTorch with the hooks in place. A job without "
            "PyTorch, or a python started "
            "with -S, -I or -E, shows no steps."
        )
    return "PyTorch was loaded, but no batch was taken from a DataLoader and no optimizer stepped."


def _structural_blindspots(timeline: Timeline, trainer: Trainer | None) -> list[Blindspot]:
    """What the way the job is built hides from us."""
    found = []
    if timeline.run.ended_ns is None:
        found.append(
            Blindspot(
                what="how the job ended",
                why="it is still running, or its launcher was killed",
                forbids="its exit code and total time",
            )
        )
    if trainer is not None and trainer.others:
        found.append(
            Blindspot(
                what=f"{trainer.others} further training processes",
                why="ranks are not merged yet; this is the one with the most steps",
                forbids="stragglers and waiting between ranks",
            )
        )
    if trainer is not None and trainer.reader_tid != trainer.tid:
        found.append(
            Blindspot(
                what="how long the training thread waits for input",
                why="another thread takes the batches from the loader",
                forbids="a verdict about input",
            )
        )
    if trainer is not None and trainer.step_kind == "train" and not trainer.train_loaders:
        found.append(
            Blindspot(
                what="where the training data comes from",
                why="no DataLoader feeds the steps",
                forbids="a verdict about input",
            )
        )
    return found
