"""`fuelline help COMMAND`: the page of a command, as `fuelline COMMAND --help` shows it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "help",
        help="show the help of a command",
        description="Show the help of a command, such as `fuelline help plan serve`.",
    )
    parser.add_argument(
        "command", nargs="*", help="the command (default: all of them, with a line each)"
    )
    parser.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    """Print it."""
    from fuelline.cli import parser  # noqa: PLC0415 - which lists us

    top = parser.build_parser(options.command)
    parser.check_command(options.command, top)
    parser.find_parser(options.command, top).print_help(sys.stdout)
    return 0
