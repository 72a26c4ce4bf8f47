"""Builds the scanner of traces into the package if a C compiler is at hand, and goes on without.

The package works without it, only slower (see src/fuelline/ingest/kineto/scan.py), so no failure
here may fail the installation: no compiler, no Python headers, another operating system. With it
the wheel is one of this platform for every Python since 3.10; without it, one for all.

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
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand
    BuildHookInterface = object

ROOT = Path(__file__).resolve().parent
PACKAGE = ROOT / "src" / "fuelline" / "ingest" / "kineto"
SOURCE = PACKAGE / "scanner" / "_scan.c"
TARGET = PACKAGE / "_scan.abi3.so"
FLAGS = ("-O2", "-std=c99", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing")
"""Without contraction, because times must be rounded as polars rounds them."""
MOST_SECONDS = 120


class ScannerHook(BuildHookInterface):  # type: ignore[misc]
    """Hatchling asks it before it packs a wheel, an editable one too."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and say for whom the wheel is."""
        del version
        if self.target_name != "wheel":
            return
        why = build()
        if why:
            self.app.display_warning(f"Without the compiled scanner ({why}); traces load slower.")
            return
        build_data["artifacts"].append(TARGET.relative_to(ROOT).as_posix())
        build_data["pure_python"] = False
        build_data["tag"] = f"cp310-abi3-{_platform()}"


def build() -> str:
    """Make TARGET; why that did not work, or nothing."""
    TARGET.unlink(missing_ok=True)  # of another machine, perhaps
    if sys.platform != "linux" or sys.implementation.name != "cpython":
        return f"not made for {sys.implementation.name} on {sys.platform}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this Python has no stable interface"
    compiler = shlex.split(os.environ.get("CC") or "cc")
    include = sysconfig.get_path("include")
    command = [*compiler, *FLAGS, f"-I{include}", str(SOURCE), "-o", str(TARGET), "-lm"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{compiler[0]}: {error}"
    if done.returncode == 0 and not _is_loadable():
        TARGET.unlink(missing_ok=True)
        return "it was built and cannot be loaded"
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return "" if done.returncode == 0 else f"{compiler[0]}: {lines[0][:200]}"


def _is_loadable() -> bool:
    """Whether this Python takes what was built: a compiler may be one for another machine."""
    words = (
        "import importlib.util as u, sys;"
        "s = u.spec_from_file_location('_scan', sys.argv[1]);"
        "s.loader.exec_module(u.module_from_spec(s))"
    )
    command = [sys.executable, "-I", "-c", words, str(TARGET)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _platform() -> str:
    """The wheel's tag: built against this machine's libraries, so for machines like it."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


if __name__ == "__main__":
    said = build()
    sys.stdout.write(f"{said or TARGET} ({platform.machine()})\n")
    sys.exit(1 if said else 0)
