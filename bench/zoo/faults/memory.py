"""A memory that gives all cores together no more than one of them could use.

Emulated, because two cores cannot be trusted to fill the memory of a server: a library that is
preloaded into the job meters large copies. `bench/RESULTS.md` has what two cores do without it.
"""

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
from bench.zoo.faults import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).with_name("narrow_memory.c")


@dataclass(frozen=True)
class NarrowMemory:
    """Large copies of the job, and of a neighbour if there is one, share this many bytes/s."""

    bytes_per_s: float
    neighbour: bool = False
    """Whether another process streams through the same memory, for seconds at a time."""

    def missing(self) -> str | None:
        """A C compiler."""
        return None if shutil.which("gcc") else "gcc"

    @contextlib.contextmanager
    def plant(self, data: Path) -> Iterator[Planted]:
        """Compile and preload; the neighbour has the same library."""
        with tempfile.TemporaryDirectory(prefix="fuelline-zoo-") as folder:
            library, shared = Path(folder) / "narrow_memory.so", Path(folder) / "shared"
            compile_it = ["gcc", "-shared", "-fPIC", "-O2", "-fno-builtin", "-o", str(library)]
            subprocess.run([*compile_it, str(SOURCE), "-ldl"], check=True)
            shared.write_bytes(bytes(8))
            earlier = os.environ.get("LD_PRELOAD")
            env = {
                "LD_PRELOAD": f"{library}:{earlier}" if earlier else str(library),
                "NARROW_MEMORY_FILE": str(shared),
                "NARROW_MEMORY_BYTES_PER_S": str(self.bytes_per_s),
            }
            with contextlib.ExitStack() as stack:
                if self.neighbour:
                    stream = ["-m", "bench.zoo.faults.stream"]
                    stack.enter_context(processes.python(stream, env=env))
                yield Planted(data, env=env)
