"""Compiles the emulated device for this torch, once: about a minute; then it lies in bench/out/emu.

Torch's headers come with it (`torch.utils.cpp_extension`); what is needed beside is a C++ compiler.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import torch
from torch.utils import cpp_extension

__all__ = ["BuildError", "build"]

SOURCES = sorted(Path(__file__).with_name("csrc").iterdir())
OUT = Path(__file__).parents[1] / "out" / "emu"
FLAGS = ("-O1", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden", "-w")


class BuildError(RuntimeError):
    """There is no compiler, or it refused."""


def build() -> Path:
    """The library, compiled if it was not yet."""
    target = OUT / f"emu-{_fingerprint()}.so"
    if target.exists():
        return target
    OUT.mkdir(parents=True, exist_ok=True)
    with (OUT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two tests may start at once
        if not target.exists():
            _compile(target)
    return target


def _compile(target: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if not compiler:
        raise BuildError("no C++ compiler: install g++, or name one in CXX")
    partial = target.with_suffix(f".{os.getpid()}")
    libraries = cpp_extension.library_paths()
    command = [
        *(compiler, *FLAGS, f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"),
        *(f"-I{path}" for path in cpp_extension.include_paths()),
        *(str(path) for path in SOURCES if path.suffix == ".cpp"),
        *(f"-L{path}" for path in libraries),
        *(f"-Wl,-rpath,{path}" for path in libraries),
        *("-ltorch", "-ltorch_cpu", "-lc10", "-o", str(partial)),
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode:
        raise BuildError(f"{compiler} refused the emulated device: {told.stderr[-3000:]}")
    partial.rename(target)


def _fingerprint() -> str:
    told = hashlib.sha256(torch.__version__.encode())
    for path in SOURCES:
        told.update(path.read_bytes())
    return told.hexdigest()[:12]
