"""`fuelline doctor`: what can be seen on this machine, what cannot, and how to see more."""

from __future__ import annotations

import shutil
import sys
from textwrap import fill
from typing import TYPE_CHECKING

from fuelline.cli.saying import WIDEST
from fuelline.schema.names import clean
from fuelline.store.runs import runs_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from fuelline.schema.run.capabilities import Capability


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "doctor",
        help="check what can be measured on this machine, and how to see more",
        description="Check what can be measured on this machine, what cannot, and how to see more.",
    )
    parser.add_argument(
        "--pid",
        type=int,
        metavar="PID",
        help="what can be seen of this process instead, by whom, and how to see more (default: "
        "this machine)",
    )
    parser.set_defaults(act=act)


def act(options: argparse.Namespace) -> int:
    """Print one paragraph for each capability."""
    if options.pid is not None:
        from fuelline.record.attach.access import (  # noqa: PLC0415 - not needed by others
            describe_process,
            find_process,
        )

        _print(describe_process(find_process(options.pid)))
        print(f"\nNext: fuelline attach {options.pid}")
        return 0
    from fuelline.ingest.kineto.scan import find_capability  # noqa: PLC0415 - not needed by others
    from fuelline.record.capabilities import find_capabilities  # noqa: PLC0415

    _print([*find_capabilities(runs_folder()), find_capability()])
    print("\nNext: fuelline run train.py")
    return 0


def _print(capabilities: Sequence[Capability]) -> None:
    for capability in capabilities:
        mark = "ok  " if capability.ok else "NO  "
        print(_wrap(mark, f"{capability.name}: {capability.detail}"))
        if not capability.ok:
            print(_wrap("      it gives:  ", capability.enables))
            how = capability.how_to_enable or "not possible on this machine"
            print(_wrap("      to get it: ", how))


def _wrap(label: str, words: str) -> str:
    """Below each other behind a label, within the screen; paths and options are never cut."""
    indent = " " * len(label)
    return fill(
        clean(words),
        min(WIDEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 80,
        initial_indent=label,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
