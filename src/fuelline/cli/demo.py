"""`fuelline demo`: a starved job, recorded and diagnosed, in a minute, on any machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "demo",
        help="a starved job, recorded and diagnosed, in a minute",
        description="Record and diagnose a small starved job.",
    )
    parser.set_defaults(act=act)


def act(_: argparse.Namespace) -> int:
    """Run it."""
    return 0
