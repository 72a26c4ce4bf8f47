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
    typed = _find_command(words)
    for name in [typed] if typed in COMMANDS else COMMANDS:
        import_module(f"fuelline.cli.{COMMANDS[name]}").add_to(commands)
    return parser


def separate_job(words: list[str], parser: argparse.ArgumentParser) -> list[str]:
    """Put `--` before a job that starts with `-m`, which is no option of ours."""
    command = _find_command(words)
    actions = _actions_of(command, parser)
    if not any(action.nargs == argparse.REMAINDER for action in actions):
        return words  # starts no job
    valued = {name for each in actions if each.nargs != 0 for name in each.option_strings}
    takes_value = False
    for at in range(words.index(command) + 1, len(words)):
        word = words[at]
        if word == "--":
            break
        if word == "-m" and not takes_value:
            return [*words[:at], "--", *words[at:]]
        if not word.startswith("-") and not takes_value:
            break
        takes_value = word in valued and not takes_value
    return words


def _find_command(words: Sequence[str]) -> str:
    return next((word for word in words if not word.startswith("-")), "")


def _actions_of(command: str, parser: argparse.ArgumentParser) -> list[argparse.Action]:
    commands = next(
        each
        for each in parser._actions  # noqa: SLF001 - argparse has no other way to ask
        if isinstance(each, argparse._SubParsersAction)  # noqa: SLF001 - likewise
    )
    chosen = commands.choices.get(command)
    return [] if chosen is None else list(chosen._actions)  # noqa: SLF001 - likewise
