"""`fuelline plan check`: how accurate the planner is on measured rows, ours or the user's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "check",
        help="how accurate is it on measured rows?",
        description=(
            "Predict every row of a table of measurements and compare: error by kind, coverage of "
            "the "
            "80 %% intervals, the worst ten rows, and the rows that have no answer, with the "
            "reason."
        ),
        epilog="The columns are described in docs/plan.md.",
    )
    parser.add_argument("table", metavar="TABLE.csv", help="measured rows (no default)")
    parser.add_argument("--json", action="store_true", help="print JSON (default: a report)")
    parser.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    """Check it."""
    import msgspec  # noqa: PLC0415 - the help needs none of these

    from fuelline.predict.planner.check import read_rows, score_rows  # noqa: PLC0415
    from fuelline.predict.planner.physics.constants import shipped_constants  # noqa: PLC0415
    from fuelline.report.plan_check import write_score  # noqa: PLC0415
    from fuelline.report.terminal import render_terminal  # noqa: PLC0415

    score = score_rows(read_rows(Path(options.table)), shipped_constants())
    if options.json:
        sys.stdout.write(msgspec.json.encode(score).decode() + "\n")
    else:
        render_terminal(write_score(score), sys.stdout)
    return 0
