"""`fuelline undo`: a script as it was before `fuelline tune --apply`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.fix.tune.undoing import undo_last
from fuelline.schema.names import clean
from fuelline.store.runs import undo_folder

if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "undo",
        help="restore a script that `tune --apply` changed",
        description="Restore a script, to the byte, as it was before `fuelline tune --apply`.",
    )
    parser.add_argument(
        "script", nargs="?", type=Path, help="the script (default: the one changed last)"
    )
    parser.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    """Restore it."""
    change = undo_last(undo_folder(), options.script)
    print(clean(f"{change.script} is as it was. Next: fuelline run {change.script}"))
    return 0
