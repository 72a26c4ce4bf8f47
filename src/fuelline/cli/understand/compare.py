"""`fuelline compare`: what changed between two runs, for people, for CI, for a pull request."""

from __future__ import annotations

import argparse
import sys
from tempfile import gettempdir
from typing import TYPE_CHECKING

from fuelline.cli.pages import add_junit, add_page, check_junit, check_page, say_page
from fuelline.cli.record.endings import clean_up_on_signals
from fuelline.store.runs import find_run, name_run

if TYPE_CHECKING:
    from pathlib import Path

_MOST_PERCENT = 10_000


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "compare",
        help="show what changed between two runs; --threshold for CI, --markdown for a pull "
        "request",
        description="Show what changed from one run to another (steps, parts of their time, "
        "classes of kernels) and whether that is more than noise. Both runs recorded, or both "
        "imported. On a busy machine, record each side several times, in turns, and give all of "
        "them: `fuelline compare A1 B1 --before A2 A3 --after B2 B3`.",
        epilog="Exit code 1 if the job got slower by more than --threshold, beyond the noise.",
    )
    parser.add_argument("before", help="a run's folder, id or name, or a trace file (no default)")
    parser.add_argument("after", help="another one (no default)")
    for side in ("before", "after"):
        parser.add_argument(
            f"--{side}",
            dest=f"more_{side}",
            nargs="+",
            default=[],
            metavar="RUN",
            help=f"further recordings of the job {side} (default: none)",
        )
    parser.add_argument(
        "--threshold",
        type=_percent,
        metavar="PERCENT",
        help="exit 1 if it is slower by more than this, beyond the noise (default: never)",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print JSON (default: a report)")
    shape.add_argument("--markdown", action="store_true", help="print Markdown (default: a report)")
    add_page(parser)
    add_junit(parser)
    parser.set_defaults(
        act=act,
        reads=lambda options: [path for side in _find_sides(options) for path, _ in side],
        drafts=lambda _: [gettempdir()],
    )


def act(options: argparse.Namespace) -> int:
    """Print it."""
    from fuelline import pipeline  # noqa: PLC0415 - `fuelline --help` need not load polars

    check_page(options.html)
    check_junit(options.junit)
    before, after = _find_sides(options)
    with clean_up_on_signals():  # a trace file is imported into a folder that must not stay
        is_over = pipeline.compare_runs(
            before,
            after,
            threshold=options.threshold,
            shape="json" if options.json else "markdown" if options.markdown else "report",
            stream=sys.stdout,
            page=options.html,
            junit=options.junit,
        )
    say_page(options.html, beside_data=options.json or options.markdown)
    return 1 if is_over else 0


def _find_sides(options: argparse.Namespace) -> list[list[tuple[Path, str]]]:
    """The runs before and those after, each with its name."""
    named = (
        [options.before, *options.more_before],
        [options.after, *options.more_after],
    )
    return [[(path, name_run(path)) for path in map(find_run, side)] for side in named]


def _percent(word: str) -> float:
    value = float(word.removesuffix("%"))
    if not 0 <= value <= _MOST_PERCENT:
        raise argparse.ArgumentTypeError(f"{word} is not a percentage from 0 to {_MOST_PERCENT}")
    return value / 100
