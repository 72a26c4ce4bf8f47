"""`fuelline plan`: what limits a model on a chip before money is spent; a file per subcommand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.cli.plan import check, chips, serve, shape, train

if TYPE_CHECKING:
    import argparse

_COMMANDS = (serve, train, chips, shape, check)
_DESCRIPTION = (
    "Say what limits a model on a chip, what it will reach, what it costs, and what to buy or "
    "change. Every answer is an interval with its limit."
)


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "plan",
        help="work out which hardware, batch and parallelism a language model needs",
        description=_DESCRIPTION,
        epilog="CONFIG is a Hugging Face config.json (file or folder) or a public name.",
    )
    inner = parser.add_subparsers(title="questions", metavar="QUESTION", required=True)
    for command in _COMMANDS:
        command.add_to(inner)
