"""`fuelline attach`: the jobs on this host, and a diagnosis of one that is running already."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.cli.pages import add_page, check_page, say_page
from fuelline.cli.record.run import add_no_command, add_price
from fuelline.cli.saying import ProgressLine, say
from fuelline.schema.errors import InputError, RefusedError, UsageError
from fuelline.schema.names import clean
from fuelline.store.runs import name_run, new_run_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.record.attach.jobs import Job
    from fuelline.record.attach.processes import Seen
    from fuelline.record.attach.session import Session
    from fuelline.schema.run.recording import Tier

FIRST_LOOK_S = 1.0
"""The recording must have begun before it can be shown."""
LEAST_S, MOST_S = 5.0, 86_400.0
_EPILOG = """\
examples:
  fuelline attach              the jobs that run on this host
  fuelline attach 4711         look at process 4711 for a minute, then diagnose
  fuelline attach train.py     the same, by a word of the job's command
  fuelline attach 4711 --seconds 20 --json
  fuelline attach 4711 --follow       live, until q

The job is never stopped, and nothing is put into it: its thread states and
counters (tier T0) and its Python stacks (T1) are read from outside. --hooks
(T2) puts the hooks of `fuelline run` into it, from Python 3.14 on. The report
says which tier it had.
"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "attach",
        help="list the jobs that run on this host; diagnose one of them as it runs",
        description="Diagnose a job that is running already, from outside, without stopping it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "job",
        nargs="?",
        help="its pid, a word of its command, its Slurm job (slurm:1234) or container id (default: "
        "list the jobs)",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long to look, 5 to 86400 (default: 60)",
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="show the job live until q, as `fuelline watch` does; the recording is kept "
        "(default: off)",
    )
    parser.add_argument(
        "--apply",
        action="store_true",
        help="apply what can be changed on this host without touching the job, look again, say "
        "what it brought, and undo it (default: only list it)",
    )
    parser.add_argument(
        "--tier",
        choices=("T0", "T1"),
        help="T0: thread states and counters only; T1: Python stacks as well (default: what is "
        "allowed)",
    )
    parser.add_argument(
        "--hooks",
        action="store_true",
        help="tier T2: put the hooks of `fuelline run` into the job, and take them out at the end; "
        "needs Python 3.14 or later in the job (default: nothing is put into it)",
    )
    parser.add_argument(
        "--run-dir",
        type=_path,
        metavar="DIR",
        help="folder for this recording; must not exist yet (default: a new one in the run store)",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON (default: a report)")
    shape.add_argument("--markdown", action="store_true", help="print Markdown (default: a report)")
    add_page(parser)
    add_price(parser)
    add_no_command(parser)
    parser.set_defaults(act=act)


def _path(word: str) -> Path:
    from pathlib import Path  # noqa: PLC0415 - help needs none

    return Path(word)


def _seconds(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not LEAST_S <= value <= MOST_S:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of seconds from 5 to 86400")
    return value


def act(options: argparse.Namespace) -> int:
    """List the jobs, or look at one."""
    if not sys.platform.startswith("linux"):
        raise RefusedError("Attaching needs Linux, whose /proc shows what a process does.")
    if options.job is None:
        return _list(as_json=options.json)
    check_page(options.html)
    session = open_session(options)
    return _follow(session, options) if options.follow else _look(session, options)


def open_session(options: argparse.Namespace) -> Session:
    """The job that is meant, and how it may be looked at; nothing has started yet."""
    from fuelline.record.attach.access import find_access, refuse  # noqa: PLC0415 - loads msgspec
    from fuelline.record.attach.session import Session  # noqa: PLC0415

    job = find_job(options.job)
    _refuse_several(job)
    judged = [each for each in job.trainers if each.python] or list(job.trainers)
    seen = judged[0]
    access = find_access(seen)
    if access is None:
        raise refuse(seen)
    if not seen.python and not seen.frameworks:
        raise InputError(
            f"Process {seen.pid} ({clean(seen.stat.name)}) has no Python in it, nor has anything "
            "below it. Nothing was attached to. `fuelline attach` lists the jobs here."
        )
    tier: Tier = access.tier
    if options.tier == "T1" and tier == "T0":
        more = f" {access.how}." if access.how else ""
        raise RefusedError(
            f"The stacks of process {seen.pid} cannot be read: {access.why_not_more}. Nothing was "
            f"attached to.{more} Without --tier its thread states are read."
        )
    if options.tier is None and tier == "T0":
        more = f" To see more: {access.how}." if access.how else ""
        say(f"without stacks (tier T0): {access.why_not_more}.{more}")
    tier = options.tier or tier
    visited = _find_visited(job, judged, tier) if options.hooks else []
    tier = "T2" if options.hooks else tier
    run_dir = options.run_dir or new_run_dir(job.name)
    if run_dir.exists():
        raise UsageError(
            f"{run_dir} already exists. Nothing was attached to, so that nothing is overwritten. "
            "Name a new folder with --run-dir, or leave it out."
        )
    trainers = {each.pid: "+".join(each.frameworks) for each in job.trainers}
    return Session(
        job.root,
        trainers,
        tier,
        run_dir,
        shows=not options.no_command,
        is_live=options.follow,
        visited=visited,
    )


def _find_visited(job: Job, trainers: Sequence[Seen], tier: Tier) -> list[Seen]:
    """Processes that hooks are put into: trainers and their workers; raises if that cannot be."""
    from fuelline.record.attach.jobs import find_below  # noqa: PLC0415 - loads msgspec
    from fuelline.record.attach.processes import is_loader_worker  # noqa: PLC0415
    from fuelline.record.attach.visits import explain_no_hooks  # noqa: PLC0415

    first = trainers[0]
    why = explain_no_hooks(first)
    if not why and tier == "T0":
        why = "its memory may not be written (`fuelline doctor --pid` says what would allow it)"
    if why:
        raise RefusedError(
            f"No hooks can be put into process {first.pid}: {why}. Nothing was attached to. "
            "Without --hooks it is looked at from outside."
        )
    below = find_below(job.root)
    workers = [each for each in below.values() if is_loader_worker(each, below.get(each.stat.ppid))]
    chosen = {each.pid: each for each in (*trainers, *workers)}
    return [each for each in chosen.values() if not explain_no_hooks(each)]


def _refuse_several(job: Job) -> None:
    """A shell, or the first process of a container, may have several jobs below it."""
    from fuelline.record.attach.jobs import find_separate  # noqa: PLC0415 - loads msgspec

    separate = find_separate(job)
    if separate:
        pids = ", ".join(str(each.pid) for each in separate[:8])
        raise UsageError(
            f"Below process {job.root.pid} ({clean(job.root.stat.name)}) there are {len(separate)} "
            f"jobs: pids {pids}. Nothing was attached to. Name one of them."
        )


def find_job(word: str) -> Job:
    """What the user means: a pid, else a scheduler's or a container's number, else a word."""
    from fuelline.record.attach.access import find_process  # noqa: PLC0415 - loads msgspec
    from fuelline.record.attach.jobs import find_jobs, job_of  # noqa: PLC0415

    if word.isdecimal():
        return job_of(find_process(int(word)))
    jobs = find_jobs()
    kind, _, number = word.partition(":")
    if kind == "slurm":
        found = [job for job in jobs if job.slurm == number]
    else:
        found = [
            job
            for job in jobs
            if job.container and len(word) >= 6 and word.startswith(job.container[: len(word)])
        ]
        found = found or [job for job in jobs if job.name == word]
        found = found or [job for job in jobs if any(word in each for each in job.root.words)]
    if not found:
        raise InputError(
            f"No job on this host is called {word!r}. Nothing was attached to. `fuelline attach` "
            "lists the jobs that can be seen; a process may also be named by its pid."
        )
    if len(found) > 1:
        pids = ", ".join(str(job.root.pid) for job in found[:8])
        raise UsageError(
            f"{len(found)} jobs match {word!r}: pids {pids}. Nothing was attached to. Name one by "
            "its pid."
        )
    return found[0]


def _follow(session: Session, options: argparse.Namespace) -> int:
    """The live screen over the recording as it grows; what was recorded is kept."""
    from fuelline.cli.record import watch  # noqa: PLC0415 - loads the pipeline

    if not (options.json or (sys.stdin.isatty() and sys.stdout.isatty())):
        raise UsageError(
            "--follow draws a screen, and there is no terminal here. Nothing was attached to. "
            "--json prints a snapshot a line; without --follow there is a report at the end."
        )
    session.start()
    try:
        threading.Event().wait(FIRST_LOOK_S)
        shown = argparse.Namespace(
            run=str(session.run_dir), json=options.json, once=False, workers=False, interval=1.0
        )
        code = watch.act(shown)
    except KeyboardInterrupt:  # how JSON is ended
        code = 0
    finally:
        session.stop()
    say(f"recorded in {session.run_dir}. `fuelline diagnose {name_run(session.run_dir)}` reads it.")
    return code


def _look(session: Session, options: argparse.Namespace) -> int:
    """Look, then report, and say what could be changed."""
    watch_for(session, options.seconds)
    code = report(session, options)
    if not options.json and not options.markdown:
        from fuelline.cli.record.changing import offer  # noqa: PLC0415 - loads the pipeline

        offer(session, options, again=open_session)
    return code


def watch_for(session: Session, seconds: float, undo: Sequence[str] = ()) -> None:
    """Record for the set time; an interrupt ends it early, and it is reported as well.

    `undo`: commands that put back what was changed meanwhile, kept with the run for whoever finds
    that we were killed.
    """
    over = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: over.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    progress = ProgressLine()
    session.start()
    if undo:
        (session.run_dir / "undo.sh").write_text("\n".join(["#!/bin/sh", *undo, ""]))
    until_s = time.monotonic() + seconds
    try:
        while (left_s := until_s - time.monotonic()) > 0 and not session.is_over:
            if sys.stderr.isatty():
                words = (
                    f"looking at process {session.root.pid} ({session.tier}), {left_s:.0f} s left"
                )
                progress.show(f"{words}; Ctrl-C ends it now and reports")
            if over.wait(min(1.0, left_s)):
                break
    finally:
        progress.end()
        session.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


def report(session: Session, options: argparse.Namespace) -> int:
    """The diagnosis, as it was asked for."""
    from fuelline import pipeline  # noqa: PLC0415 - loaded once the job has been looked at

    run_dir = session.run_dir
    pipeline.show_report(
        run_dir,
        name=name_run(run_dir),
        price=options.price,
        stream=sys.stdout,
        shape="json" if options.json else "markdown" if options.markdown else "report",
        page=options.html,
    )
    say_page(options.html, beside_data=options.json or options.markdown)
    return 0


def _list(*, as_json: bool) -> int:
    from fuelline.record.attach.glance import glance  # noqa: PLC0415 - loads msgspec
    from fuelline.record.attach.jobs import find_jobs  # noqa: PLC0415

    jobs = find_jobs()
    waits = glance(jobs, threading.Event().wait)
    if as_json:
        _print_json(jobs, waits)
        return 0
    if not jobs:
        print(
            "No job that loaded torch, tensorflow or jax can be seen on this host. Those of other "
            "users are seen by an administrator only: sudo fuelline attach"
        )
        return 0
    from fuelline.report.document import Document, Statement, Table  # noqa: PLC0415 - loads rich
    from fuelline.report.renderers.terminal import render_terminal  # noqa: PLC0415

    header = ("pid", "since", "what", "with", "devices", "waits")
    rows = tuple(_row(job, waits.get(job.root.pid)) for job in jobs)
    words = "waits: of the last second, the training process waited for its workers."
    following = f"Next: fuelline attach {jobs[-1].root.pid}"
    table = Table(header, rows, gives_way=2)
    render_terminal(Document((table, Statement(words), Statement(following))), sys.stdout)
    return 0


def _print_json(jobs: Sequence[Job], waits: dict[int, float | None]) -> None:
    from fuelline.record.attach.access import user_name  # noqa: PLC0415
    from fuelline.record.attach.session import find_age_s  # noqa: PLC0415
    from fuelline.schema.foreign import encode_json  # noqa: PLC0415
    from fuelline.schema.redaction import redact_command  # noqa: PLC0415

    rows = [
        {
            "pid": job.root.pid,
            "user": user_name(job.root.uid),
            "seconds": round(find_age_s(job.root), 1),
            "command": redact_command(job.root.words),
            "frameworks": list(job.frameworks),
            "trainers": [each.pid for each in job.trainers],
            "workers": job.workers,
            "devices": sorted(job.devices),
            "is_server": job.is_server,
            "slurm": job.slurm,
            "container": job.container,
            "pod": job.pod,
            "wait_frac": waits.get(job.root.pid),
        }
        for job in jobs
    ]
    print(encode_json(rows))


def _row(job: Job, waited: float | None) -> tuple[str, ...]:
    from fuelline.record.attach.session import find_age_s  # noqa: PLC0415
    from fuelline.schema.redaction import redact_command  # noqa: PLC0415
    from fuelline.schema.units import count, duration  # noqa: PLC0415

    words = redact_command(job.root.words)
    of_script = (at + 1 for at, word in enumerate(words) if Path(word).stem == job.name)
    parts = ["+".join(job.frameworks)]
    parts += [f"{len(job.trainers)} processes"] if len(job.trainers) > 1 else []
    parts += [count(job.workers, "worker")] if job.workers else []
    parts += [f"slurm {job.slurm}"] if job.slurm else []
    parts += [f"container {job.container}"] if job.container else []
    return (
        str(job.root.pid),
        duration(find_age_s(job.root)),
        clean(" ".join([job.name, *words[next(of_script, 1) :]])),
        ", ".join(parts),
        ", ".join(sorted(job.devices)) or "-",
        "-" if waited is None else f"{waited:.0%}",
    )
