"""Faults by a slow filesystem: a FUSE mount of the data that takes its time, or has a queue."""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.zoo.fault import NotPlanted, Planted
from bench.zoo.faults import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

MOUNT_S = 15.0


@dataclass(frozen=True)
class SlowMount:
    """The data through a mount that adds a delay to calls, as a network filesystem does."""

    read_ms: float = 0.0
    open_ms: float = 0.0
    getattr_ms: float = 0.0
    serial: bool = False
    """Calls are served one at a time, as by a metadata server that many share."""
    storm_clients: int = 0
    """So many others ask for metadata all the time."""
    attributes_s: float = 0.0
    """So long the kernel keeps names, sizes and times; NFS has 3 s or more (nfs(5), acregmin)."""

    def missing(self) -> str | None:
        """FUSE: the device, the library and its Python binding."""
        if os.geteuid() != 0 or not Path("/dev/fuse").exists():
            return "root and /dev/fuse"
        try:
            importlib.import_module("mfusepy")
        except (ImportError, OSError) as reason:
            return f"mfusepy with libfuse ({reason})"
        return None

    @contextlib.contextmanager
    def plant(self, data: Path) -> Iterator[Planted]:
        """Mount, and start the other clients if there are to be any."""
        with tempfile.TemporaryDirectory(prefix="fuelline-zoo-") as folder:
            mount = Path(folder)
            with self._served(data, mount), contextlib.ExitStack() as stack:
                if self.storm_clients:
                    storm = ["-m", "bench.zoo.faults.storm", str(mount), str(self.storm_clients)]
                    stack.enter_context(processes.python(storm))
                yield Planted(mount)

    @contextlib.contextmanager
    def _served(self, data: Path, mount: Path) -> Iterator[None]:
        delays = [str(ms) for ms in (self.read_ms, self.open_ms, self.getattr_ms, 0.0)]
        words = [*delays, "serial" if self.serial else "parallel", str(self.attributes_s)]
        with _serve(data, mount, words):
            yield


@dataclass(frozen=True)
class SlowOut:
    """A mount for results on which every write takes this much longer; its folder is in ZOO_OUT."""

    write_ms: float

    def missing(self) -> str | None:
        """As of a slow mount."""
        return SlowMount().missing()

    @contextlib.contextmanager
    def plant(self, data: Path) -> Iterator[Planted]:
        """Mount an empty folder."""
        with (
            tempfile.TemporaryDirectory(prefix="fuelline-zoo-") as behind,
            tempfile.TemporaryDirectory(prefix="fuelline-zoo-") as mount,
            _serve(Path(behind), Path(mount), ["0", "0", "0", str(self.write_ms), "parallel", "1"]),
        ):
            yield Planted(data, env={"ZOO_OUT": mount})


@contextlib.contextmanager
def _serve(data: Path, mount: Path, words: list[str]) -> Iterator[None]:
    server = ["-m", "bench.zoo.faults.slow_mount", str(data), str(mount), *words]
    with processes.python(server) as process:
        try:
            _wait_for(mount, process)
            yield
        finally:
            subprocess.run(["umount", "--lazy", str(mount)], check=False)


def _wait_for(mount: Path, server: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + MOUNT_S
    while not mount.is_mount():
        if server.poll() is not None or time.monotonic() > until_s:
            raise NotPlanted(f"a FUSE mount (the server ended with {server.poll()})")
        time.sleep(0.05)
