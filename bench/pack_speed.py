"""Random reads of many small files, cold: loose files against their pack, by the same reader.

Both lie on one ext4 file system of their own in an image file, which is unmounted and mounted again
before every pass: neither content nor inodes nor names are in any cache of it then, and nobody
else's cache is touched. The image's own pages are dropped as well. The reader is a plain Python
program that lists the folder and reads its files in random order; it does not know of packs. Needs
root for the mount and 30 GB of disk. PACK_FILES sets another number of files. About 20 minutes.

    python -m bench.pack_speed
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import results
from bench.zoo.faults.processes import REPOSITORY
from bench.zoo.job import my_turn
from fuelline.fix.job_site import PATHS_VARIABLE, SITE_DIR

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = int(os.environ.get("PACK_FILES", "1000000"))
FILE_BYTES = 8192
PER_FOLDER = 1000
SAMPLE = min(FILES, 20_000)
"""Loose files that are read: each costs the same, so that some tell the rate. A pack is read whole,
as by an epoch: there the first reads pay for the later ones."""
PASSES = 3
BAR_SPEED = 5.0
BAR_SPACE = 0.02

READER = """
import os, random, sys, time
folder, reads, processes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
paths = [os.path.join(top, name) for top, _, names in os.walk(folder) for name in names]
paths.sort()
chosen = random.Random(5).sample(paths, reads)
start = time.perf_counter()
for number in range(processes):
    if os.fork() == 0:
        size = 0
        for path in chosen[number::processes]:
            with open(path, "rb") as file:
                size += len(file.read())
        os._exit(size != len(chosen[number::processes]) * int(sys.argv[4]))
codes = [os.wait()[1] for _ in range(processes)]
print(sum(codes), time.perf_counter() - start)
"""


def main() -> dict[str, Any]:
    """The figures and whether they meet the bars."""
    with my_turn(), _disk() as disk:
        _plant(disk.mount / "data")
        told = _pack(disk.mount / "data", disk.mount / "pack")
        rates: dict[str, list[float]] = {}
        for _ in range(PASSES):
            for processes in (1, 8):
                for way in ("loose", "packed"):
                    disk.forget()
                    rate = _read(disk.mount, processes, is_packed=way == "packed")
                    rates.setdefault(f"{way}_{processes}", []).append(rate)
        content = FILES * FILE_BYTES
        space = sum(path.stat().st_size for path in (disk.mount / "pack").iterdir()) / content - 1
    figures: dict[str, Any] = {name: statistics.median(each) for name, each in rates.items()}
    figures |= {"files": FILES, "overhead": space, "packing": told}
    figures["speedup_1"] = figures["packed_1"] / figures["loose_1"]
    figures["speedup_8"] = figures["packed_8"] / figures["loose_8"]
    figures["passed"] = (
        min(figures["speedup_1"], figures["speedup_8"]) >= BAR_SPEED and space <= BAR_SPACE
    )
    results.write_section("pack_speed", markdown(figures))
    return figures


class Disk:
    """An image file with a file system in it, mounted."""

    def __init__(self, folder: Path) -> None:
        self.image = folder / "image"
        self.mount = folder / "mount"
        self.mount.mkdir()
        with self.image.open("wb") as file:
            file.truncate(3 * FILES * max(FILE_BYTES, 4096) + (2 << 30))
        _run("mkfs.ext4", "-q", "-F", "-N", str(FILES + FILES // 8 + 10_000), str(self.image))

    def join(self) -> None:
        _run("mount", "-o", "loop", str(self.image), str(self.mount))

    def leave(self) -> None:
        _run("umount", str(self.mount))

    def forget(self) -> None:
        """Nothing of it stays in memory."""
        self.leave()
        descriptor = os.open(self.image, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
        self.join()


@contextlib.contextmanager
def _disk() -> Iterator[Disk]:
    with tempfile.TemporaryDirectory(prefix="fuelline-bench-") as name:
        disk = Disk(Path(name))
        disk.join()
        try:
            yield disk
        finally:
            disk.leave()


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def _plant(data: Path) -> None:
    block = os.urandom(FILE_BYTES + FILES)
    for number in range(FILES):
        folder = data / f"{number // PER_FOLDER:05d}"
        if number % PER_FOLDER == 0:
            folder.mkdir(parents=True)
        (folder / f"{number:08d}.bin").write_bytes(block[number : number + FILE_BYTES])


def _pack(data: Path, pack: Path) -> str:
    shutil.rmtree(pack, ignore_errors=True)
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    command = [sys.executable, "-m", "fuelline", "pack", str(data), "-o", str(pack)]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[0]


def _read(mount: Path, processes: int, *, is_packed: bool) -> float:
    env = dict(os.environ)
    reads = FILES if is_packed else SAMPLE
    if is_packed:
        plan = {"packed": [str(mount / "pack")], "cache": None}
        env |= {PATHS_VARIABLE: json.dumps(plan), "PYTHONPATH": SITE_DIR}
    words = [sys.executable, "-c", READER, str(mount / "data"), str(reads), str(processes)]
    words.append(str(FILE_BYTES))
    done = subprocess.run(words, env=env, check=True, capture_output=True, text=True)
    failed, seconds = done.stdout.split()
    if int(failed):
        raise RuntimeError("a reader did not get all bytes")
    return reads / float(seconds)


def markdown(figures: dict[str, Any]) -> str:
    """The section of the results page."""
    rows = "\n".join(
        f"| {number} process{'es' if number > 1 else ''} | {figures[f'loose_{number}']:.0f} | "
        f"{figures[f'packed_{number}']:.0f} | {figures[f'speedup_{number}']:.1f}x | 5x |"
        for number in (1, 8)
    )
    return f"""## Packed against loose files, cold

`python -m bench.pack_speed`, {results.machine()}. {FILES:,} files of
{FILE_BYTES} bytes in random order, of the loose ones {SAMPLE:,}, by a reader that lists the folder
first; the file system is mounted anew before each pass, so that nothing of it is cached.
Medians of {PASSES} passes in turn.

| reads | loose, files/s | packed, files/s | gain | bar |
| --- | --- | --- | --- | --- |
{rows}
| space beyond the content | | {100 * figures["overhead"]:.2f} % | | 2 % |"""


if __name__ == "__main__":
    measured = main()
    print(measured)
    sys.exit(0 if measured["passed"] else 1)
