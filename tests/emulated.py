"""Runs a snippet on a machine that has the emulated device of bench/emu, and gives its answer.

In a process of its own: a device that is registered with torch stays so for as long as it lives.
The first use compiles the device, half a minute; without a C++ compiler the test is skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[1]
_FRAME = """
import json
import torch
import bench.emu as emu
torch.set_num_threads(1)
{code}
print(json.dumps(answer))
"""


def ask_emulated(code: str, **settings: float) -> Any:
    """What the snippet left in `answer`; settings as in `bench.emu.SETTINGS`."""
    if not (os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")):
        pytest.skip("no C++ compiler to build the emulated device with")
    told = subprocess.run(
        [sys.executable, "-c", _FRAME.format(code=textwrap.dedent(code))],
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            **{f"EMU_{name.upper()}": str(value) for name, value in settings.items()},
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout.splitlines()[-1])
