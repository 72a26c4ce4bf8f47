"""Feeds damaged traces to `fuelline import`; keeps what is neither read nor refused.

    python -m bench.traces.fuzz [--minutes 10] [--seed 1] [--keep FOLDER] [SOURCE ...]

A case passes if it is imported and diagnosed, or refused with an InputError that names a byte, and
leaves no folder behind when it was refused. Everything else (another exception, a hang of more than
a minute, a leftover) is kept in FOLDER and printed. Exit code 1 if anything was kept.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from fuelline.pipeline import diagnose_run, import_files
from fuelline.schema.errors import InputError

MEMORY_BYTES = 3 * 2**30
SLOW_S = 60.0
TOKENS = (
    b"null",
    b"-1",
    b"1e400",
    b'"x"',
    b"[]",
    b"{}",
    b"true",
    b"nan",
    b"9" * 30,
    b"\x00",
    b"\xff",
)
NUMBER = re.compile(rb"(?<=: )-?[\d.]+")
VALUE = re.compile(rb'(?<=: )(?:"[^"]*"|-?[\d.]+|\[[^\]]*\])')
SAMPLE = (
    b'{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", '
    b'"numSms": 108}], "distributedInfo": {"rank": 0, "world_size": 2}, "traceEvents": [\n'
    + b",\n".join(
        b'{"ph": "X", "cat": "%s", "name": "%s", "pid": 1, "tid": 7, "ts": %d, "dur": %d, "args": '
        b'{"External id": %d, "device": 0, "stream": 7, "correlation": %d, "grid": [8, 1, 1], '
        b'"block": [64, 1, 1], "Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"]}}'
        % (cat, name, 1000 * n + 100 * k, 90 - 9 * k, n, n)
        for n in range(12)
        for k, (cat, name) in enumerate(
            (
                (b"user_annotation", b"ProfilerStep#%d" % n),
                (b"cpu_op", b"aten::mm"),
                (b"cuda_runtime", b"cudaLaunchKernel"),
                (b"kernel", b"ncclDevKernel_AllReduce" if n % 3 else b"ampere_s16816gemm"),
            )
        )
    )
    + b'\n], "traceName": "sample", "baseTimeNanoseconds": 0}\n'
)


def damage(text: bytes, rng: random.Random) -> bytes:
    """One to four kinds of damage."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        text = rng.choice(KINDS)(text, rng)
    pack = rng.random()
    if pack < 0.15:
        packed = bytearray(gzip.compress(text, 1))
        if rng.random() < 0.5 and packed:
            packed[rng.randrange(len(packed))] ^= 1 << rng.randrange(8)
        return bytes(packed)
    return text


def cut(text: bytes, rng: random.Random) -> bytes:
    return text[: rng.randrange(len(text) + 1)]


def flip(text: bytes, rng: random.Random) -> bytes:
    data = bytearray(text)
    for _ in range(rng.choice((1, 1, 5, 40))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def swap_value(text: bytes, rng: random.Random) -> bytes:
    found = list(VALUE.finditer(text))
    if not found:
        return text
    one = rng.choice(found)
    new = rng.choice(TOKENS) if rng.random() < 0.7 else rng.choice(found)[0]
    return text[: one.start()] + new + text[one.end() :]


def huge_number(text: bytes, rng: random.Random) -> bytes:
    found = list(NUMBER.finditer(text))
    if not found:
        return text
    one = rng.choice(found)
    new = b"%d" % (int(rng.choice((1, -1))) * 10 ** rng.randrange(1, 25))
    return text[: one.start()] + new + text[one.end() :]


def move_slice(text: bytes, rng: random.Random) -> bytes:
    a, b = sorted(rng.randrange(len(text) + 1) for _ in range(2))
    b = min(b, a + rng.choice((3, 50, 2000)))
    at = rng.randrange(len(text) + 1)
    piece = text[a:b]
    return rng.choice((text[:a] + text[b:], text[:at] + piece + text[at:]))


def insert_junk(text: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(text) + 1)
    junk = rng.choice(
        (*TOKENS, b"}", b"]", b"{", b"[" * 3000, b'"', b",", b"\\", rng.randbytes(30))
    )
    return text[:at] + junk + text[at:]


KINDS = (cut, flip, swap_value, swap_value, huge_number, move_slice, insert_junk)


class Silent:
    """Nobody watches."""

    def expect(self, size_bytes: int) -> None: ...

    def advance(self, size_bytes: int) -> None: ...


def attempt(data: bytes, folder: Path) -> str | None:
    """What is wrong with how a case was taken; None if nothing is."""
    path, run_dir = folder / "case.json", folder / "run"
    path.write_bytes(data)
    shutil.rmtree(run_dir, ignore_errors=True)
    since = time.monotonic()
    try:
        import_files([path], run_dir, partial=False, jobs=1, progress=Silent())
        diagnose_run(run_dir)
    except InputError as refused:
        left = [each.name for each in folder.iterdir() if each.name != "case.json"]
        if left and run_dir.name not in left:
            return f"left behind: {left}"
        if "byte" not in str(refused) and "no event" not in str(refused):
            return f"no byte in: {refused}"
    except Exception:  # noqa: BLE001 - whatever it is, it is what we look for
        return traceback.format_exc()
    took = time.monotonic() - since
    return f"took {took:.0f} s" if took > SLOW_S else None


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", nargs="*", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("bench/out/fuzz"))
    options = parser.parse_args(argv)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    seeds = [SAMPLE] + [gzip.decompress(path.read_bytes()) for path in options.source]
    rng = random.Random(options.seed)
    until = time.monotonic() + 60 * options.minutes
    cases = kept = 0
    kinds: set[str] = set()
    with tempfile.TemporaryDirectory() as name:
        while time.monotonic() < until:
            data = damage(rng.choice(seeds), rng)
            wrong = attempt(data, Path(name))
            cases += 1
            if wrong is not None and wrong.splitlines()[-1][:120] not in kinds:
                kinds.add(wrong.splitlines()[-1][:120])
                kept += 1
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"case-{options.seed}-{cases}").write_bytes(data)
                print(f"case {cases}: {wrong}", flush=True)
    print(f"{cases} cases, {kept} kept")
    return 1 if kept else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
