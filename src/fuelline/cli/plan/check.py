"""`fuelline plan check`: how accurate the planner is on measured rows, ours or the user's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.cli.plan import options as shared

if TYPE_CHECKING:
    import argparse

NO_ANSWER = 3
"""Exit code of a table of which no row could be answered: bad input."""


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "check",
        help="check how accurate the planner is on measured rows",
        description=(
            "Predict every row of a table of measurements and compare: error by kind, coverage of "
            "the 80 % intervals, the ten worst rows and why, and the rows that could not be "
            "answered, with the reason."
        ),
        epilog="The columns are described in docs/plan.md. Exit code 3 if no row was answered.",
    )
    parser.add_argument("table", metavar="TABLE.csv", help="measured rows (no default)")
    shared.add_catalogue(parser)
    parser.add_argument("--json", action="store_true", help="print JSON (default: a report)")
    parser.set_defaults(act=act, reads=shared.list_given, if_any=True)


def act(options: argparse.Namespace) -> int:
    """Check it."""
    from fuelline.plan.check import read_rows, score_rows  # noqa: PLC0415
    from fuelline.plan.check.case import OwnCatalogue  # noqa: PLC0415
    from fuelline.report.plan.check import write_score  # noqa: PLC0415
    from fuelline.report.renderers.terminal import render_terminal  # noqa: PLC0415
    from fuelline.schema.foreign import encode_json  # noqa: PLC0415 - the help needs none of these

    rows = read_rows(Path(options.table))
    request = shared.make_request(options)
    own = OwnCatalogue(chips=request.own_chips(), models=request.own_models())
    score = score_rows(rows, request.find_constants(), own)
    if options.json:
        sys.stdout.write(encode_json(score, is_indented=False) + "\n")
    else:
        render_terminal(write_score(score), sys.stdout)
    return 0 if score.answered else NO_ANSWER
