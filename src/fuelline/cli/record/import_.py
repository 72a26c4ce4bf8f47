"""`fuelline import`: a run made of what other profilers recorded."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.cli.frugal import save_memory, save_threads
from fuelline.cli.pages import add_page, check_page, say_page
from fuelline.cli.record.run import add_price
from fuelline.schema.errors import UsageError
from fuelline.schema.names import clean
from fuelline.store.runs import name_run, new_run_dir, note_run, runs_folder

if TYPE_CHECKING:
    import argparse

    from rich.progress import Progress

_PATIENCE_S = 1.0
"""An import that takes longer than this shows how far it is."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "import",
        help="import traces of other profilers: Kineto (.json, .gz, .zst) and others",
        description="Make a run from traces of other profilers: one file, several ranks' files, "
        "or a folder of them. The format is detected from the content, not the name.",
        epilog="The diagnosis follows at once; `fuelline diagnose` shows it again.",
    )
    parser.add_argument(
        "trace", nargs="+", type=Path, help="files or folders of one job (no default)"
    )
    parser.add_argument(
        "-o", "--output", type=Path, help="folder of the new run (default: among the recorded runs)"
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help="read as much as there is of files that were cut short (default: refuse them)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        help="processes, each reading one file at a time; each one beyond two may take 200 MB more "
        "(default: two)",
    )
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="read the files on a Ray cluster, `auto` or HOST:PORT, whose nodes all see them and "
        "the new run's folder (default: processes of this host)",
    )
    parser.add_argument(
        "--no-diagnose",
        action="store_true",
        help="only import, for scripts (default: also show the diagnosis)",
    )
    add_price(parser)
    add_page(parser)
    parser.set_defaults(
        act=act,
        reads=lambda options: options.trace,
        processes=lambda options: options.jobs or 1,
        drafts=lambda options: [options.output.parent if options.output else runs_folder()],
    )


def act(options: argparse.Namespace) -> int:
    """Import, and name the command that comes next."""
    save_memory()
    save_threads()
    # Processes that read look for no modules in the working directory: others may write there.
    os.environ["PYTHONSAFEPATH"] = "1"
    from fuelline import pipeline  # noqa: PLC0415 - `fuelline --help` need not load polars

    if options.jobs is not None and options.jobs < 1:
        raise UsageError(
            f"--jobs {options.jobs} is not a number of processes. Nothing was imported. Give 1 or "
            "more, or leave it out."
        )
    check_page(options.html)
    name = options.trace[0].name.partition(".")[0]
    run_dir = options.output or new_run_dir(name)
    why: list[str] = []
    with contextlib.ExitStack() as stack:
        spread = None
        if options.ray is not None:
            from fuelline.tools.on_ray import open_ray  # noqa: PLC0415 - few have a cluster

            spread = stack.enter_context(open_ray(options.ray))
        bar = stack.enter_context(_Bar())
        made = pipeline.import_files(
            options.trace,
            run_dir,
            partial=options.partial,
            jobs=options.jobs,
            progress=bar,
            splits=True,
            tell=why.append,
            spread=spread,
        )
    for each in made:
        note_run(each, name)
        print(clean(f"Imported into {each}{_count(*pipeline.list_parts(each))}"), flush=True)
    if len(made) > 1:
        _tell_apart(made, why, page=options.html)
    elif options.no_diagnose and options.html is None:
        print(f"\n{clean(f'Next: fuelline diagnose {shlex.quote(name_run(run_dir))}')}")
    else:
        word = name_run(run_dir)
        pipeline.show_report(
            run_dir,
            name=word,
            price=options.price,
            stream=None if options.no_diagnose else sys.stdout,
            page=options.html,
        )
        say_page(options.html, beside_data=False)
    return 0


def _count(files: int, ranks: list[int]) -> str:
    """What a run was made of, if that is more than one file with one rank."""
    if files < 2 and len(ranks) < 2:
        return ""
    whole = list(range(ranks[0], ranks[-1] + 1)) if ranks else []
    named = f"{ranks[0]} to {ranks[-1]}" if ranks == whole and len(ranks) > 1 else ""
    shown = named or ", ".join(map(str, ranks[:_MOST_RANKS]))
    more = ", ..." if not named and len(ranks) > _MOST_RANKS else ""
    files_said = f"{files} file{'s' if files > 1 else ''}"
    return f": {files_said}, rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


_MOST_RANKS = 8
_WIDTH = 80


def _tell_apart(made: list[Path], why: list[str], page: Path | None) -> None:
    """Of files that are several jobs, or several times of one; a page shows one of them."""
    words = [shlex.quote(name_run(each)) for each in made]
    said = f"{' '.join(why)} They are {len(made)} runs, the earliest first."
    print("", *textwrap.wrap(clean(said), _WIDTH), "", sep="\n")
    more = "" if page is None else f" --html {shlex.quote(str(page))}"
    print(clean(f"Next: fuelline compare {words[0]} {words[-1]}{more}"))


class _Bar:
    """Bytes and rate on the terminal's error stream, once it takes longer than a second."""

    def __init__(self) -> None:
        self._since_s = time.monotonic()
        self._progress: Progress | None = None
        self._expected = 0
        self._read = 0

    def __enter__(self) -> _Bar:  # noqa: PYI034 - Self came with 3.11
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def expect(self, size_bytes: int) -> None:
        """How much there will be."""
        self._expected = size_bytes

    def advance(self, size_bytes: int) -> None:
        """So much more was read."""
        self._read += size_bytes
        if self._progress is None and time.monotonic() - self._since_s > _PATIENCE_S:
            self._progress = self._open()
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=self._read)

    def _open(self) -> Progress:
        from rich.console import Console  # noqa: PLC0415 - most imports are done before it shows
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            DownloadColumn,
            Progress,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = (BarColumn(20), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        progress = Progress("importing", *columns, console=Console(file=sys.stderr), transient=True)
        progress.add_task("importing", total=self._expected)
        progress.start()
        return progress
