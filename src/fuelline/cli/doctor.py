"""`fuelline doctor`: what can be seen on this machine, what cannot, and how to see more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.cli.store import runs_folder

if TYPE_CHECKING:
    import argparse


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "doctor",
        help="what can be seen on this machine, and how to see more",
        description="Say what can be seen on this machine, what cannot, and how to see more.",
    )
    parser.set_defaults(act=act)


def act(_: argparse.Namespace) -> int:
    """Print one paragraph a capability."""
    from fuelline.ingest.kineto.scan import find_capability  # noqa: PLC0415 - not needed by others
    from fuelline.record.capabilities import find_capabilities  # noqa: PLC0415

    capabilities = [*find_capabilities(runs_folder()), find_capability()]
    for capability in capabilities:
        print(f"{'ok ' if capability.ok else 'NO '} {capability.name}: {capability.detail}")
        if not capability.ok:
            print(f"      without it: {capability.enables}")
            print(f"      to get it:  {capability.how_to_enable}")
    print("\nNext: fuelline run train.py")
    return 0
