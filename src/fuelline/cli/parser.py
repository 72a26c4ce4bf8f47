"""The top page of the help, and the commands behind it."""

from __future__ import annotations

import argparse

from fuelline import __version__
from fuelline.cli import (
    compare,
    demo,
    diagnose,
    doctor,
    export,
    feed,
    import_,
    pack,
    plan,
    probe,
    run,
    runs,
    tune,
    undo,
    watch,
    whatif,
)

_COMMANDS = (
    demo, run, watch, import_, diagnose, compare, export, whatif, tune, undo, feed, probe,
    pack, plan, runs, doctor,
)  # fmt: skip

_DESCRIPTION = """\
Finds what keeps accelerators waiting, proves it, and says what it costs.

Most questions need two commands:

  fuelline run train.py --epochs 2     record an unmodified job; diagnosis at the end
  fuelline diagnose                    that diagnosis again; --json for scripts
"""


def build_parser() -> argparse.ArgumentParser:
    """All commands, each described by its own file."""
    parser = argparse.ArgumentParser(
        prog="fuelline",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="`fuelline COMMAND --help` tells more. New here? Start with `fuelline demo`.",
    )
    parser.add_argument("--version", action="version", version=f"fuelline {__version__}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks (default: off)")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_to(commands)
    return parser
