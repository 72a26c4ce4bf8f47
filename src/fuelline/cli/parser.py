"""The top page of the help, and the commands behind it."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING

from fuelline import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "demo": "record.demo",
    "run": "record.run",
    "watch": "record.watch",
    "diagnose": "understand.diagnose",
    "whatif": "understand.whatif",
    "tune": "fix.tune",
    "undo": "fix.undo",
    "feed": "understand.feed",
    "probe": "understand.probe",
    "pack": "fix.pack",
    "import": "record.import_",
    "compare": "understand.compare",
    "export": "understand.export",
    "roofline": "plan.roofline",
    "plan": "plan",
    "runs": "understand.runs",
    "doctor": "record.doctor",
}
"""What is typed, and the file behind it, in the order of the help."""

_DESCRIPTION = """\
Find out what keeps your GPUs waiting, with evidence and what it costs.

Most questions need two commands:

  fuelline run train.py --epochs 2   record an unmodified job and diagnose it
  fuelline diagnose                  show that again; --json for scripts
"""


def build_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """All commands, each described by its own file; only the one that is typed, if one is.

    A job waits for us to start: it need not wait for the commands that it does not use.
    """
    parser = argparse.ArgumentParser(
        prog="fuelline",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="See `fuelline COMMAND --help` for details. New here? Start with `fuelline demo`.",
    )
    parser.add_argument("--version", action="version", version=f"fuelline {__version__}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks (default: off)")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    typed = next((word for word in words if not word.startswith("-")), "")
    for name in [typed] if typed in COMMANDS else COMMANDS:
        import_module(f"fuelline.cli.{COMMANDS[name]}").add_to(commands)
    return parser
