"""`fuelline demo`: a starved job, recorded and diagnosed, then fixed while it runs."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

from fuelline.cli.record import run
from fuelline.schema.errors import RefusedError
from fuelline.schema.units import number
from fuelline.store.runs import new_run_dir

_LEAST_GAIN = 1.05
"""Less is what two runs of one job differ by."""
_JOB = Path(__file__).parent / "assets" / "starved.py"


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "demo",
        help="record and diagnose a starved job, then fix it, in two minutes",
        description="Record and diagnose a small starved job, then run it again under --fix, and "
        "show before and after. Needs torch and numpy, no GPU.",
    )
    parser.set_defaults(act=act)


def act(_: argparse.Namespace) -> int:
    """Record the job that comes with the package, as the user would, without a fix and with it."""
    for package in ("torch", "numpy"):
        if importlib.util.find_spec(package) is None:
            raise RefusedError(
                f"The demo trains with {package}, which this Python does not have. Nothing was "
                f"run. `pip install {package}` installs it; `fuelline run` works without it."
            )
    print(f"1. A starved job: {_JOB}\n")
    code, before = _run()
    if code == 0:
        print("\n2. The same job again, with loader workers that follow demand\n")
        code, after = _run("--fix")
        print(f"\n3. Before and after\n\n{_compare(before, after)}")
    print("\nNow your own: fuelline run train.py")
    return code


def _run(*options: str) -> tuple[int, float | None]:
    """The job's exit code, and its samples per second: under --fix, since its last change."""
    print(f"$ fuelline run {' '.join((*options, _JOB.name))}\n", flush=True)
    parser = argparse.ArgumentParser()
    run.add_to(parser.add_subparsers())
    chosen = parser.parse_args(["run", *options, str(_JOB)])
    chosen.run_dir = new_run_dir(f"{_JOB.stem}{'_fixed' if options else ''}")
    code = run.act(chosen)
    from fuelline.store.listing import read_verdict  # noqa: PLC0415 - the help need not load it

    seen = read_verdict(chosen.run_dir)
    return code, None if seen is None else seen.samples_per_s


def _compare(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "  One of the runs was not recorded, so there is nothing to compare."
    most = max(before, after)
    lines = [
        f"  {name:<14} {'#' * round(32 * value / most):<32} {number(value):>7} samples/s"
        for name, value in (("as it was", before), ("under --fix", after))
    ]
    gain = after / before
    words = f"{gain:.2f}x as fast since the last change by --fix, which the report above lists."
    if gain < _LEAST_GAIN:
        words = "No gain: the report above says what --fix found, such as that no core was free."
    return "\n".join((*lines, "", f"  {words}"))
