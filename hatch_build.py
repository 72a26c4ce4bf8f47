"""Builds the compiled parts into the package where that is possible, and goes on without.

The package works without them, only slower (see src/fuelline/ingest/kineto/scan.py and
src/fuelline/record/buffer.py), so no failure here may fail the installation: no compiler, no Python
headers, another operating system. Both use the stable ABI of Python 3.10: with one of the parts the
wheel is one of this platform for every Python since then; without, one for all.

    python hatch_build.py        # the same for a source tree that is used in place
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, NamedTuple

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    BuildHookInterface = object

ROOT = Path(__file__).resolve().parent
PACKAGE = ROOT / "src" / "fuelline"
FLAGS = ("-O2", "-std=c99", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing")
"""Without contraction, because times must be rounded as polars rounds them."""
MOST_SECONDS = 120


class Part(NamedTuple):
    """A compiled part of the package."""

    source: Path
    target: Path
    price: str
    """What it means to be without."""


PARTS = (
    Part(
        PACKAGE / "ingest" / "kineto" / "scanner" / "_scan.c",
        PACKAGE / "ingest" / "kineto" / "_scan.abi3.so",
        "traces load slower",
    ),
    Part(
        PACKAGE / "record" / "_buffer.c",
        PACKAGE / "record" / "_buffer.abi3.so",
        "recording costs more and does not see garbage collections",
    ),
)


class PartsHook(BuildHookInterface):  # type: ignore[misc]
    """Hatchling asks it before it packs a wheel, an editable one too."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and say for whom the wheel is."""
        del version
        if self.target_name != "wheel":
            return
        for part in PARTS:
            why = build(part)
            if why:
                name = part.target.relative_to(PACKAGE).as_posix()
                self.app.display_warning(f"Without {name} ({why}); {part.price}.")
                continue
            build_data["artifacts"].append(part.target.relative_to(ROOT).as_posix())
            build_data["pure_python"] = False
            build_data["tag"] = f"cp310-abi3-{_platform()}"


def build(part: Part) -> str:
    """Make it; why that did not work, or nothing."""
    part.target.unlink(missing_ok=True)  # of another machine, perhaps
    if sys.platform != "linux" or sys.implementation.name != "cpython":
        return f"not made for {sys.implementation.name} on {sys.platform}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this Python has no stable interface"
    compiler = shlex.split(os.environ.get("CC") or "cc")
    include = sysconfig.get_path("include")
    command = [*compiler, *FLAGS, f"-I{include}", str(part.source), "-o", str(part.target), "-lm"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{compiler[0]}: {error}"
    if done.returncode == 0 and not _is_loadable(part.target):
        part.target.unlink(missing_ok=True)
        return "it was built and cannot be loaded"
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return "" if done.returncode == 0 else f"{compiler[0]}: {lines[0][:200]}"


def _is_loadable(target: Path) -> bool:
    """Whether this Python takes what was built: a compiler may be one for another machine."""
    words = (
        "import importlib.util as u, sys;"
        "s = u.spec_from_file_location(sys.argv[2], sys.argv[1]);"
        "s.loader.exec_module(u.module_from_spec(s))"
    )
    command = [sys.executable, "-I", "-c", words, str(target), target.name.partition(".")[0]]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _platform() -> str:
    """The wheel's tag: for machines like this one. `make dist` reads whom else it serves."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


if __name__ == "__main__":
    said = [build(part) for part in PARTS]
    for part, why in zip(PARTS, said, strict=True):
        sys.stdout.write(f"{part.target.name}: {why or 'built'} ({platform.machine()})\n")
    sys.exit(1 if any(said) else 0)
