"""The data's path, top to bottom: recording -> timeline -> signals -> diagnosis -> report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fuelline.diagnose import cannot_tell, diagnose
from fuelline.ingest import read_hosts
from fuelline.report import render_terminal, write_document
from fuelline.schema.facts import SyncFacts
from fuelline.schema.findings import Diagnosis, RunSummary
from fuelline.schema.names import encodable
from fuelline.schema.recording import Blindspot
from fuelline.schema.units import duration
from fuelline.signals import measure, measure_devices, measure_ranks
from fuelline.timeline.meetings import match_meetings
from fuelline.timeline.merge import align, merge, shift
from fuelline.timeline.tiles import cut_tiles
from fuelline.timeline.trainer import find_trainers

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

    from fuelline.timeline import Timeline
    from fuelline.timeline.merge import Offset
    from fuelline.timeline.tiles import Tiling
    from fuelline.timeline.trainer import Trainer


def diagnose_run(run_dir: Path, price: float | None = None) -> Diagnosis:
    """Read a run, compacting it on the way if it has ended, and diagnose it."""
    hosts, offsets = _read_aligned(run_dir)
    timeline = merge(hosts)
    ranks = [(each, cut_tiles(timeline, each)) for each in find_trainers(timeline)]
    sync, trainer, tiling = _compare_ranks(hosts, timeline, ranks)
    blindspots = [
        *timeline.blindspots,
        *_structural_blindspots(timeline, trainer, len(ranks)),
        *_clock_blindspots(hosts, offsets),
    ]
    summary = _summarise(timeline, run_dir)
    if trainer is None or tiling is None:
        devices = measure_devices(hosts[0]).devices
        return cannot_tell(summary, blindspots, _why_no_steps(timeline, trainer), price, devices)
    facts = measure(_host_of(hosts, trainer), trainer, tiling, sync)
    return diagnose(facts, summary, blindspots, price)


def _read_aligned(run_dir: Path) -> tuple[list[Timeline], list[Offset]]:
    """The recordings of all hosts on the clock of the first."""
    hosts = read_hosts(run_dir)
    offsets = align(hosts)
    moved = [shift(each, offset.shift_ns) for each, offset in zip(hosts, offsets, strict=True)]
    return moved, offsets


def _host_of(hosts: list[Timeline], trainer: Trainer) -> Timeline:
    """The recording of the host that a rank ran on."""
    return next(each for each in hosts if any(facts.pid == trainer.pid for facts in each.processes))


def _compare_ranks(
    hosts: list[Timeline], timeline: Timeline, ranks: list[tuple[Trainer, Tiling | None]]
) -> tuple[SyncFacts, Trainer | None, Tiling | None]:
    """How ranks wait for each other, and the rank to judge: the first that is no culprit."""
    if not ranks:
        return SyncFacts(), None, None
    stepping = {
        each.rank: (each, tiles) for each, tiles in ranks if each.rank is not None and tiles
    }
    meetings = match_meetings(timeline, [trainer for trainer, _ in ranks])
    sync = measure_ranks(timeline, meetings, {rank: tiles for rank, (_, tiles) in stepping.items()})
    own = []
    for culprit in sync.culprits:
        trainer, tiling = stepping[culprit.rank]
        facts = measure(_host_of(hosts, trainer), trainer, tiling)
        own.append(msgspec.structs.replace(culprit, own=facts))
    late = {culprit.rank for culprit in sync.culprits}
    judged = next(((each, tiles) for each, tiles in ranks if each.rank not in late), ranks[0])
    return msgspec.structs.replace(sync, culprits=own), *judged


def _clock_blindspots(hosts: list[Timeline], offsets: list[Offset]) -> list[Blindspot]:
    """How well the hosts' clocks agree, where that matters."""
    known = [offset.error_ns for offset in offsets if offset.error_ns is not None]
    spots = []
    if len(known) < len(offsets):
        lost = [
            host.run.host
            for host, each in zip(hosts, offsets, strict=True)
            if each.error_ns is None
        ]
        spots.append(
            Blindspot(
                what=f"how the clock of {', '.join(lost)} differs from {hosts[0].run.host}'s",
                why="no collective of both was recorded; their wall clocks are taken as they are",
                forbids="saying who waits for whom across them",
            )
        )
    if max(known) > 0:
        spots.append(
            Blindspot(
                what=f"differences under {duration(max(known) / 1e9)} between hosts",
                why="their clocks are aligned at collectives, to within that",
                forbids="calling a rank late by less",
            )
        )
    return spots


def diagnose_as_json(run_dir: Path, price: float | None = None) -> str:
    """The contract of `diagnose --json`."""
    return msgspec.json.format(msgspec.json.encode(diagnose_run(run_dir, price))).decode()


def show_report(run_dir: Path, *, price: float | None, stream: TextIO) -> None:
    """The diagnosis for people."""
    render_terminal(write_document(diagnose_run(run_dir, price)), stream)


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


def _structural_blindspots(
    timeline: Timeline, trainer: Trainer | None, trainers: int
) -> list[Blindspot]:
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
    if trainer is not None and trainer.rank is None and trainers > 1:
        found.append(
            Blindspot(
                what=f"{trainers - 1} further training processes",
                why="they took part in no collective that was seen; this is the one with the most "
                "steps",
                forbids="stragglers and waiting between them",
            )
        )
    ranks = max((facts.ranks or 0 for facts in timeline.processes), default=0)
    if ranks > trainers:
        found.append(
            Blindspot(
                what=f"{ranks - trainers} of {ranks} ranks",
                why="they left no steps in this recording",
                forbids="what they waited for, and blaming them",
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
