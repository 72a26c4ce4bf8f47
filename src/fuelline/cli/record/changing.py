"""What can be changed now, beside a job that was attached to: listed, or tried and taken back."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from fuelline.cli.saying import say
from fuelline.store.runs import new_run_dir

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from fuelline.record.attach.changes import HostChange, Neighbour, Wanted
    from fuelline.record.attach.session import Session
    from fuelline.schema.diagnosis.findings import Diagnosis

_APART_S = 1.0


def offer(
    session: Session,
    options: argparse.Namespace,
    again: Callable[[argparse.Namespace], Session],
) -> None:
    """Say what could be changed on this host; with --apply do it, look again, and undo it."""
    from fuelline.pipeline import diagnose_run  # noqa: PLC0415 - loaded after the look
    from fuelline.record.attach.changes import propose  # noqa: PLC0415

    if session.is_over:
        return
    before = diagnose_run(session.run_dir)
    changes = propose(_find_wanted(before, session), session.root.pid)
    if not changes:
        if options.apply:
            print("\nNothing that can be changed on this host would help: nothing was applied.")
        return
    print("\nWhat can be changed now, without touching the job")
    for number, change in enumerate(changes, start=1):
        print(f"  {number}. {change.describe()}")
    if not options.apply:
        print("\n--apply does it, looks again, says what it brought, and undoes it.")
        return
    _try(changes, before, options, again)


def _try(
    changes: list[HostChange],
    before: Diagnosis,
    options: argparse.Namespace,
    again: Callable[[argparse.Namespace], Session],
) -> None:
    from fuelline.cli.record.attach import watch_for  # noqa: PLC0415 - it calls us
    from fuelline.pipeline import diagnose_run  # noqa: PLC0415

    options.run_dir = new_run_dir("attached-applied")
    session = again(options)
    undo = [command for change in changes for command in change.list_commands()]
    try:
        for change in changes:
            problem = change.apply()
            if problem is not None:
                say(f"not applied: {problem}.")
        watch_for(session, options.seconds, undo)
        after = diagnose_run(session.run_dir)
    finally:
        for change in reversed(changes):
            change.undo()
    print("\nWith them, and undone since:")
    print(f"  before  {_describe(before)}")
    print(f"  after   {_describe(after)}")
    print("One look each: a job that changes its pace by itself looks the same.")


def _describe(diagnosis: Diagnosis) -> str:
    waits = sum(part.share for part in diagnosis.budget if part.part == "input")
    mean = diagnosis.steps.mean
    pace = "no step was seen" if not mean else f"{1 / mean:.2f} steps/s"
    return f"{pace}, waits for input {waits:.0%} of the time"


def _find_wanted(diagnosis: Diagnosis, session: Session) -> Wanted:
    from fuelline.pipeline.recorded import measure_run  # noqa: PLC0415
    from fuelline.record.attach.changes import Wanted  # noqa: PLC0415
    from fuelline.schema.readings import Missing  # noqa: PLC0415

    facts = measure_run(session.run_dir)
    place = None if isinstance(facts, Missing) else facts.input.place
    verdict = diagnosis.verdict
    lacks_cores = verdict.limit == "cores"
    return Wanted(
        lacks_cores=lacks_cores,
        reads_slowly=verdict.stage == "read",
        folder="" if place is None else _find_folder(place.path),
        device="" if place is None else place.device,
        neighbours=list(_find_neighbours(session)) if lacks_cores else [],
    )


def _find_folder(path: str) -> str:
    """The folder of a file, of which the observer may have folded many into their folder."""
    return path if os.path.isdir(path) else os.path.dirname(path)  # noqa: PTH112, PTH120


def _find_neighbours(session: Session) -> Iterator[Neighbour]:
    """Processes that use cores, and are neither the job's nor ours nor the kernel's."""
    from fuelline.record.attach.changes import BUSY_SHARE, Neighbour  # noqa: PLC0415
    from fuelline.record.attach.jobs import find_below  # noqa: PLC0415
    from fuelline.record.attach.processes import look_at  # noqa: PLC0415

    ours = {*find_below(session.root), os.getpid(), os.getppid()}
    first = _cpu_by_pid()
    threading.Event().wait(_APART_S)
    for pid, (name, cpu_ns) in _cpu_by_pid().items():
        used_ns = cpu_ns - first[pid][1] if pid in first and pid not in ours else 0
        seen = look_at(pid) if used_ns >= BUSY_SHARE * _APART_S * 1e9 else None
        # Another training is somebody's as much as this one, and a kernel's thread is nobody's.
        if seen is not None and seen.words and not seen.frameworks and not seen.is_refused:
            yield Neighbour(pid, name, used_ns / (_APART_S * 1e9))


def _cpu_by_pid() -> dict[int, tuple[str, int]]:
    from fuelline.record.samplers.procfs import (  # noqa: PLC0415
        find_text,
        list_numbers,
        parse_stat,
    )

    found = {}
    for pid in list_numbers("/proc"):
        text = find_text(f"/proc/{pid}/stat")
        if text:
            stat = parse_stat(text.encode())
            found[pid] = stat.name, stat.cpu_ns
    return found
