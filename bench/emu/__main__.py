"""`python -m bench.emu SCRIPT ...`: run a script unchanged on a machine that has the device."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import bench.emu  # noqa: F401 - registers the device

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m bench.emu SCRIPT [ARGUMENT ...]")
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
