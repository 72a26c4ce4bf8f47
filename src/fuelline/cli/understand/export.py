"""`fuelline export`: a run as a file that other tools open."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.schema.names import clean
from fuelline.store.runs import RUN_HELP, find_run

if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "export",
        help="export a run for Perfetto, showing where the time went",
        description="Write a run's timeline for Perfetto (ui.perfetto.dev). Steps, where the "
        "time went, states, waits and findings get tracks of their own.",
        epilog="A file whose name ends with .gz is compressed; Perfetto opens both.",
    )
    parser.add_argument("run", nargs="?", help=RUN_HELP)
    parser.add_argument(
        "--perfetto", type=Path, required=True, metavar="FILE", help="file to write (no default)"
    )
    parser.set_defaults(act=act, reads=lambda options: [find_run(options.run)])


def act(options: argparse.Namespace) -> int:
    """Write it, and say how to open it."""
    from fuelline import pipeline  # noqa: PLC0415 - `fuelline --help` need not load polars

    events = pipeline.export_perfetto(find_run(options.run), options.perfetto)
    print(
        f"{events} events in {clean(shlex.quote(str(options.perfetto)))}\n\n"
        "Next: open it at https://ui.perfetto.dev (nothing is uploaded)"
    )
    return 0
