"""Readers killed at random while others write: does the cache ever give a wrong byte?

Writers replace source files by `rename`, each version with its own pattern, and publish the version
only afterwards. Readers are forked, read through the cache as fast as they can, and are killed with
SIGKILL after a random time, 10,000 of them (TORTURE_KILLS). The budget holds half of the files, and
making room may take any copy. A read is wrong if a byte is not of its version, or if the version is
older than the one that was published before the file was opened. In the end every copy that is left
is checked for itself. 4 minutes on two cores, whether busy or not.

    python -m bench.cache_torture
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench import results
from fuelline.fix.files import local_cache
from fuelline.fix.files.caching import open_cache
from fuelline.fix.files.local_cache import LocalCache

KILLS = int(os.environ.get("TORTURE_KILLS", "10000"))
FILES = 48
MOST_BYTES = 60_000
BUDGET = FILES * MOST_BYTES // 4
READERS, WRITERS = 3, 2
LONGEST_S = 0.012
HEAD = struct.Struct("<II")
READS, HITS, WRONG = FILES, FILES + 1, FILES + 2
"""Places in the shared counters, behind the versions."""


def main() -> dict[str, Any]:
    """The figures and whether no byte was wrong."""
    local_cache.RACY_S = -1.0  # sources are replaced whole and have times of their own
    shared = memoryview(mmap.mmap(-1, 8 * (FILES + 3))).cast("Q")
    with tempfile.TemporaryDirectory(prefix="fuelline-bench-") as name:
        source, folder = Path(name, "source"), Path(name, "cache")
        source.mkdir()
        for number in range(FILES):
            _replace(source, number, 0, random.Random(number))
        with open_cache(folder, BUDGET):
            killed = _torture(source, folder, shared)
        left = [path for path in (folder / "objects").rglob("*") if path.is_file()]
        torn = sum(not _is_whole(path.read_bytes()) for path in left)
        with open_cache(folder, BUDGET):
            drafts = len(list((folder / "drafts").iterdir()))
            used = int((folder / "ledger").read_text())
    figures = {
        "kills": killed,
        "reads": shared[READS],
        "hits": shared[HITS],
        "replaced": sum(shared[:FILES]),
        "wrong": shared[WRONG],
        "torn_copies": torn,
        "copies_left": len(left),
        "drafts_left": drafts,
        "within_budget": used <= BUDGET,
    }
    is_clean = not (figures["wrong"] or torn or drafts) and figures["within_budget"]
    figures["passed"] = is_clean and killed >= KILLS and figures["hits"] > 0
    results.write_section("cache_torture", markdown(figures))
    return figures


def _torture(source: Path, folder: Path, shared: memoryview) -> int:
    rng = random.Random(1)
    writers = [_fork(partial(_write_for_ever, source, shared, at)) for at in range(WRITERS)]
    living: dict[int, float] = {}
    killed = 0
    try:
        while killed < KILLS:
            while len(living) < READERS:
                seed = rng.random()
                pid = _fork(partial(_read_for_ever, source, folder, shared, seed))
                living[pid] = time.monotonic() + rng.uniform(0, LONGEST_S)
            pid = min(living, key=lambda each: living[each])
            time.sleep(max(0.0, living.pop(pid) - time.monotonic()))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            killed += 1
    finally:
        for pid in (*living, *writers):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return killed


def _fork(work: Any) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)
    return pid


def _content(number: int, version: int, size: int) -> bytes:
    pattern = HEAD.pack(number, version) * (size // HEAD.size + 1)
    return pattern[: max(HEAD.size, size // HEAD.size * HEAD.size)]


def _is_whole(content: bytes) -> bool:
    return len(content) >= HEAD.size and content == content[: HEAD.size] * (
        len(content) // HEAD.size
    )


def _replace(source: Path, number: int, version: int, rng: random.Random) -> None:
    draft = source / f".{number}-{os.getpid()}"
    draft.write_bytes(_content(number, version, rng.randrange(100, MOST_BYTES)))
    draft.replace(source / str(number))


def _write_for_ever(source: Path, shared: memoryview, at: int) -> None:
    rng = random.Random(at)
    while True:
        number = rng.randrange(at, FILES, WRITERS)  # each writer has files of its own
        _replace(source, number, shared[number] + 1, rng)
        shared[number] += 1
        time.sleep(0.002)


def _read_for_ever(source: Path, folder: Path, shared: memoryview, seed: float) -> None:
    cache = LocalCache(str(folder), BUDGET, [str(source)], run_began_ns=2**62)
    rng = random.Random(seed)
    while True:
        number = rng.randrange(FILES)
        path, least = str(source / str(number)), shared[number]
        descriptor = cache.open(path)
        shared[HITS] += descriptor is not None
        if descriptor is None:
            descriptor = os.open(path, os.O_RDONLY)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read()
        shared[READS] += 1
        told, version = HEAD.unpack_from(content)
        if not _is_whole(content) or told != number or version < least:
            shared[WRONG] += 1


def markdown(figures: dict[str, Any]) -> str:
    """The section of the results page."""
    return f"""## The cache under torture

`python -m bench.cache_torture`, {results.machine()}. {READERS} readers at a time,
{WRITERS} writers that replace the sources; reads are counted without a lock: lower bounds.

| figure | measured | bar |
| --- | --- | --- |
| readers killed with SIGKILL | {figures["kills"]:,} | 10,000 |
| reads, of them from the cache | {figures["reads"]:,}, {figures["hits"]:,} | |
| sources replaced meanwhile | {figures["replaced"]:,} | |
| wrong or stale reads | {figures["wrong"]} | 0 |
| torn copies left, of {figures["copies_left"]} | {figures["torn_copies"]} | 0 |
| drafts left after the next start | {figures["drafts_left"]} | 0 |
| within the budget then | {"yes" if figures["within_budget"] else "no"} | yes |"""


if __name__ == "__main__":
    measured = main()
    print(measured)
    sys.exit(0 if measured["passed"] else 1)
