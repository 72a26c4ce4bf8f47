"""Slow reads without root: a small library, preloaded into the job, that delays read()."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.zoo.fault import Planted

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).with_name("slow_read.c")


@dataclass(frozen=True)
class SlowReads:
    """Every read of a file below the data folder takes this much longer."""

    delay_ms: float

    def missing(self) -> str | None:
        """A C compiler."""
        return None if shutil.which("gcc") else "gcc"

    @contextlib.contextmanager
    def plant(self, data: Path) -> Iterator[Planted]:
        """Compile and preload."""
        with tempfile.TemporaryDirectory(prefix="fuelline-zoo-") as folder:
            library = Path(folder) / "slow_read.so"
            compile_it = ["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"]
            subprocess.run(compile_it, check=True)
            earlier = os.environ.get("LD_PRELOAD")
            yield Planted(
                data,
                env={
                    "LD_PRELOAD": f"{library}:{earlier}" if earlier else str(library),
                    "SLOW_READ_BELOW": str(data),
                    "SLOW_READ_US": str(int(self.delay_ms * 1000)),
                },
            )
