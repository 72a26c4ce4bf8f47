"""`fuelline runs`: what was recorded, what it came to, and what of it can go."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.cli.quantities import parse_duration
from fuelline.cli.saying import say
from fuelline.schema.errors import InputError, RefusedError, UsageError
from fuelline.schema.names import clean
from fuelline.schema.units import count, duration, number, size
from fuelline.store.runs import find_stored, list_known, name_run, runs_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.store.listing import ListedRun
    from fuelline.store.runs import KnownRun

_DESCRIPTION = """\
List the recorded runs, the newest last: how long they took, what they came to,
how large they are. Runs of --run-dir are among them.
"""
_EPILOG = """\
examples:
  fuelline runs                          what there is, the newest last
  fuelline runs --delete 20260412-0930   one run, by the start of its id
  fuelline runs --prune 30d              all that were started before that
  fuelline runs --keep 20                all but the 20 newest

Deleting asks first, unless you say --yes. A run that is still being recorded
is never deleted, nor a folder that holds anything that is not a run's.
"""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "runs",
        help="list the recorded runs with their verdicts; delete old ones",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON (default: a table)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--delete",
        nargs="+",
        metavar="RUN",
        help="delete these runs, by id or folder (default: none)",
    )
    which.add_argument(
        "--prune",
        metavar="AGE",
        help="delete runs that were started longer ago than this, such as 30d or 12h (default: "
        "none)",
    )
    which.add_argument(
        "--keep",
        metavar="N",
        help="delete all runs but the N that were started last (default: all are kept)",
    )
    parser.add_argument(
        "--yes", action="store_true", help="delete without asking (default: ask at a terminal)"
    )
    parser.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    """Print them, or delete some."""
    if options.delete or options.prune is not None or options.keep is not None:
        if options.json:
            raise UsageError("--json lists runs; it does not go with deleting. Leave one out.")
        return _delete(_choose(options), is_sure=options.yes)
    from fuelline.store.listing import describe  # noqa: PLC0415 - loads msgspec

    runs = [describe(run.path, run.run_id) for run in list_known()]
    if options.json:
        from fuelline.schema.foreign import encode_json  # noqa: PLC0415 - likewise

        sys.stdout.write(encode_json(runs) + "\n")
    elif runs:
        _show(runs)
    else:
        print(clean(f"No runs in {runs_folder()}. `fuelline run train.py` records one."))
    return 0


def _show(runs: Sequence[ListedRun]) -> None:
    from fuelline.report.document import Document, Statement, Table  # noqa: PLC0415 - loads rich
    from fuelline.report.renderers.terminal import render_terminal  # noqa: PLC0415

    header = ("run", "took", "samples/s", "size", "verdict")
    table = Table(header, tuple(_row(run) for run in runs), gives_way=len(header) - 1)
    words = f"{count(len(runs), 'run')}, {size(sum(run.size_bytes for run in runs))}"
    render_terminal(Document((table, Statement(words), Statement(_next(runs)))), sys.stdout)


def _row(run: ListedRun) -> tuple[str, ...]:
    verdict = run.verdict
    rate = None if verdict is None else verdict.samples_per_s
    return (
        name_run(Path(run.path)),
        _took(run),
        "-" if rate is None else number(rate),
        size(run.size_bytes),
        "not diagnosed" if verdict is None else verdict.words,
    )


def _took(run: ListedRun) -> str:
    if run.state not in ("ok", "failed") or run.seconds is None:
        return run.state
    taken = duration(run.seconds)
    return taken if not run.exit_code else f"{taken}, exit {run.exit_code}"


def _next(runs: Sequence[ListedRun]) -> str:
    newest = shlex.quote(name_run(Path(runs[-1].path)))
    return f"Next: fuelline diagnose {newest}"


def _choose(options: argparse.Namespace) -> list[KnownRun]:
    """The runs that are to go, the oldest first."""
    if options.delete:
        return list({run.path: run for run in map(find_stored, options.delete)}.values())
    runs = list_known()
    if options.keep is not None:
        if not options.keep.isdecimal():
            raise UsageError(
                f"--keep {options.keep} is not a number of runs. Nothing was deleted. Try "
                "`fuelline runs --keep 20`."
            )
        return runs[: max(0, len(runs) - int(options.keep))]
    from fuelline.store.listing import find_start_ns  # noqa: PLC0415 - loads msgspec

    before_ns = time.time_ns() - 1e9 * parse_duration(options.prune, "--prune", 0.0)
    return [run for run in runs if find_start_ns(run.path) < before_ns]


def _delete(chosen: list[KnownRun], *, is_sure: bool) -> int:
    from fuelline.store.listing import count_bytes, find_obstacle  # noqa: PLC0415 - loads msgspec

    kept = [(run, why) for run in chosen if (why := find_obstacle(run.path) or _running(run.path))]
    for run, why in kept:
        say(f"{name_run(run.path)} is kept: {why}")
    going = [run.path for run in chosen if run not in [each for each, _ in kept]]
    if not going:
        print("No run was deleted.")
        return RefusedError.exit_code if kept else 0
    words = f"{count(len(going), 'run')}, {size(sum(map(count_bytes, going)))}"
    if not is_sure and not _is_agreed(going, words):
        print("No run was deleted.")
        return RefusedError.exit_code
    for path in going:
        shutil.rmtree(path)
    print(f"Deleted {words}.")
    return RefusedError.exit_code if kept else 0


def _running(run_dir: Path) -> str | None:
    """Why a run may not be over; None if it is."""
    from fuelline.ingest.recording.folder import has_ended  # noqa: PLC0415 - loads polars
    from fuelline.pipeline.opened import read_facts  # noqa: PLC0415

    try:
        is_over = has_ended(read_facts(run_dir), run_dir)
    except (InputError, OSError):
        return None  # unreadable, and nothing that anybody writes to
    return None if is_over else "it is still being recorded, or may be on another host"


def _is_agreed(going: Sequence[Path], words: str) -> bool:
    for path in going:
        print(clean(f"  {path}"))
    if not sys.stdin.isatty():
        say(f"{words} would be deleted; nobody is here to be asked. Add --yes to delete them.")
        return False
    print(f"Delete {words}? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
