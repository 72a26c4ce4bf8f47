"""`fuelline demo`: a starved job, recorded and diagnosed, in a minute, on any machine."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

from fuelline.cli.record import run
from fuelline.schema.errors import RefusedError

_JOB = Path(__file__).parent / "assets" / "starved.py"


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "demo",
        help="record and diagnose a starved job, in a minute",
        description="Record and diagnose a small starved job. Needs torch and numpy, no GPU.",
    )
    parser.set_defaults(act=act)


def act(_: argparse.Namespace) -> int:
    """Record the job that comes with the package, as the user would."""
    for package in ("torch", "numpy"):
        if importlib.util.find_spec(package) is None:
            raise RefusedError(
                f"The demo trains with {package}, which this Python does not have. Nothing was "
                f"run. `pip install {package}` installs it; `fuelline run` works without it."
            )
    print(f"$ fuelline run {_JOB.name}      # {_JOB}\n", flush=True)
    parser = argparse.ArgumentParser()
    run.add_to(parser.add_subparsers())
    code = run.act(parser.parse_args(["run", str(_JOB)]))
    print("\nNow your own: fuelline run train.py")
    return code
