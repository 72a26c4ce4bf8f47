"""Builds the stand-in for NVIDIA's management library and tells a process to use it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")
GCC = shutil.which("gcc")


def build(folder: Path, *defines: str) -> Path:
    """Compile the stub; returns the folder that holds `libnvidia-ml.so.1`."""
    assert GCC is not None
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "libnvidia-ml.so.1"
    options = ["-O2", "-Wall", "-Werror", "-shared", "-fPIC", *(f"-D{name}" for name in defines)]
    subprocess.run([GCC, *options, "-o", str(target), str(SOURCE)], check=True)
    return folder


def environment(folder: Path, **fake: object) -> dict[str, str]:
    """Ours with the stub first; `gpus=8` sets FAKE_GPUS, and so on."""
    paths = [str(folder), os.environ.get("LD_LIBRARY_PATH", "")]
    settings = {f"FAKE_{name.upper()}": str(value) for name, value in fake.items()}
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths)), **settings}
