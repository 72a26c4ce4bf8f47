"""`fuelline diagnose`: the diagnosis of a recorded run, for people or for scripts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from fuelline.cli.frugal import save_memory
from fuelline.cli.pages import add_page, check_page, say_page
from fuelline.cli.record.run import add_price
from fuelline.record.launch import find_python
from fuelline.store.runs import RUN_HELP, find_run, name_run

if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "diagnose",
        help="diagnose a recorded run again; --html for a page, --json for scripts",
        description="Say what the training in a recorded run waited for.",
        epilog="The JSON is versioned and described in docs/json.md.",
    )
    parser.add_argument("run", nargs="?", help=RUN_HELP)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON (default: a report)")
    shape.add_argument("--markdown", action="store_true", help="print Markdown (default: a report)")
    add_page(parser)
    add_price(parser)
    parser.set_defaults(act=act, reads=lambda options: [find_run(options.run)])


def act(options: argparse.Namespace) -> int:
    """Print it."""
    save_memory()
    from fuelline import pipeline  # noqa: PLC0415 - `fuelline --help` need not load polars

    check_page(options.html)
    run_dir = find_run(options.run)
    pipeline.show_report(
        run_dir,
        name=name_run(run_dir),
        price=options.price,
        stream=sys.stdout,
        python=find_python(),
        shape="json" if options.json else "markdown" if options.markdown else "report",
        page=options.html,
    )
    say_page(options.html, beside_data=options.json or options.markdown)
    return 0
