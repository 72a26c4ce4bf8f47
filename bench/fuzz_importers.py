"""Damage real traces at random and import them: an answer or a clear refusal, never anything else.

Every case is a real trace (or, where there are none, a small made one) cut short, with bits
flipped, pieces overwritten, repeated, taken out or mixed with another file, numbers turned into
words; some are packed, and damaged again. It is imported and, if that works, diagnosed. Allowed are
success and a FuellineError that names the file. A crash of the process, any other exception, more
than 30 seconds of CPU time, more than 3 GB or a partial run left behind is found, and kept with
what it takes to repeat it. Cases run in a process of their own, so that the next goes on.

    python -m bench.fuzz_importers [--seconds 600] [--seed 1] [--keep FOLDER] [--repeat FORMAT SEED]
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import socket
import sqlite3
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from bench import results

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    Damage = Callable[[bytes, random.Random, list[bytes]], bytes]

TRACES = Path(
    os.environ.get("FUELLINE_TRACES", Path(__file__).parents[2] / "shared" / "data" / "traces")
)
SOURCES = {
    "ascend": ("labelled/ascend_trace_view.json.gz",),
    "kineto": (
        "kineto/hta/triton_example/triton_example.json.gz",
        "kineto/hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
        "kineto/hta/critical_path/cuda_event_sync/event_sync_trace.json.gz",
        "kineto/hta/step_based_trace_gpu_user_annotation.json.gz",
    ),
    "nsys": ("nsys/pipit_saxpy_mpi_cuda_perlmutter.sqlite", "nsys/nsysai_h100_2gpu_1s.sqlite"),
    "perfetto": (),
    "rocpd": (),
    "rocprof": (),
    "xplane": ("xplane/tracelens_mi300_jax_gemm.xplane.pb",),
    "dcgm": ("dcgm/ericsson_t4_util91.prom", "dcgm/kops_2xL4_idle.prom"),
    "straggler": ("straggler/trace-ST.parquet",),
}
_MADE_BYTES = 1000
"""Made traces are shorter, and no sound files of their format."""
MOST_SECONDS = 30.0
MOST_BYTES = 3 << 30
SECTION = "fuzz_importers"


def read_seeds(kind: str) -> list[bytes]:
    """Real traces of a format, unpacked, and a made one where there is none."""
    found = [TRACES / name for name in SOURCES[kind] if (TRACES / name).exists()]
    return [_unpack(path.read_bytes()) for path in found] or [_made(kind)]


def _unpack(data: bytes) -> bytes:
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def _made(kind: str) -> bytes:
    event = (
        '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":2,"args":{"device":0}}'
    )
    task = event.replace('"ts":1', '"ts":"1704161511422904.2"').replace('"device"', '"Task Type"')
    return {
        "ascend": f"[{task},{task}]".encode(),
        "kineto": f'{{"schemaVersion":1,"traceEvents":[{event},{event}]}}'.encode(),
        "dcgm": b'DCGM_FI_DEV_GPU_UTIL{gpu="0",Hostname="n"} 91\n',
        "xplane": b"\n\x0f\x12\r/device:GPU:0",
        "perfetto": b"\n\x04\x08\x01\x50\x05",
        "rocpd": b"SQLite format 3\0" + bytes(84) + b"rocpd_string",
        "rocprof": b'{"rocprofiler-sdk-tool": [{"buffer_records": {}}]}',
        "nsys": b"SQLite format 3\0" + bytes(100),
        "straggler": b"PAR1" + bytes(16) + b"PAR1",
    }[kind]


def damage(data: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    """One to four kinds of damage."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        data = chance.choice(DAMAGES)(data, chance, others) or b"\0"
    return data


def _cut(data: bytes, chance: random.Random, _: list[bytes]) -> bytes:
    return data[: chance.randrange(len(data))]


def _flip(data: bytes, chance: random.Random, _: list[bytes]) -> bytes:
    changed = bytearray(data)
    for _turn in range(chance.choice((1, 1, 2, 8, 64))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _overwrite(data: bytes, chance: random.Random, _: list[bytes]) -> bytes:
    at = chance.randrange(len(data))
    filling = chance.choice((b"\xff", b"\0", b"\x7f", b"[", b"{", b'"', b"9", chance.randbytes(1)))
    return data[:at] + filling * chance.choice((1, 4, 8, 64, 4096)) + data[at + 8 :]


def _repeat(data: bytes, chance: random.Random, _: list[bytes]) -> bytes:
    start = chance.randrange(len(data))
    piece = data[start : start + chance.choice((1, 16, 512, 8192))]
    return data[:start] + piece * chance.choice((2, 3, 20)) + data[start:]


def _take_out(data: bytes, chance: random.Random, _: list[bytes]) -> bytes:
    start = chance.randrange(len(data))
    return data[:start] + data[start + chance.choice((1, 3, 64, 4096)) :]


def _mix(data: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    other = chance.choice(others)
    return data[: chance.randrange(len(data))] + other[chance.randrange(len(other)) :]


_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_WORDS = (
    b'"soon"', b"null", b"-1", b"0", b"1e400", b"NaN", b"9" * 30, b"[]", b"{}", b"true", b"-9.9e99",
    b'"' + b"x" * 100_000 + b'"', b'"\\u0000\\ud800\\u202e<b>[red]"', b"[" * 5000,
)  # fmt: skip


def _reword(data: bytes, chance: random.Random, _: list[bytes]) -> bytes:
    """A number becomes something else."""
    start = chance.randrange(len(data))
    found = _NUMBER.search(data, start)
    if found is None:
        return data
    return data[: found.start()] + chance.choice(_WORDS) + data[found.end() :]


DAMAGES: tuple[Damage, ...] = (_cut, _flip, _flip, _overwrite, _repeat, _take_out, _mix, _reword)


_CELLS: tuple[Any, ...] = (
    None, -1, 0, 1, 1 << 31, (1 << 63) - 1, -(1 << 63), 0.5, float("inf"), float("nan"), "soon", "",
    "x" * 100_000, "\x1b[31m[red]</b>\u202e", b"\0\xff",
)  # fmt: skip
"""What may stand in a cell of a sound file."""


def _rewrite_database(data: bytes, chance: random.Random) -> bytes:
    """A sound database with strange cells: some rows, or all, of some columns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "copy"
        path.write_bytes(data)
        connection = sqlite3.connect(path)
        names = [name for (name,) in connection.execute(_TABLES) if not name.startswith("ENUM")]
        for _ in range(chance.choice((1, 3, 10))):
            table = chance.choice(names)
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
            rows = chance.choice(("", "WHERE rowid % 7 = 3", "WHERE rowid = 1"))
            words = (f'UPDATE OR IGNORE "{table}" SET "{chance.choice(columns)}" = ? {rows}',)
            try:
                connection.execute(*words, (chance.choice(_CELLS),))
            except (sqlite3.Error, OverflowError):
                continue
            if chance.random() < 0.1:
                connection.execute(f'DROP TABLE "{table}"')
                names.remove(table)
        connection.commit()
        connection.close()
        return path.read_bytes()


_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"


def _rewrite_table(data: bytes, chance: random.Random) -> bytes:
    """A sound Parquet file with strange cells, or without a column."""
    frame = pl.read_parquet(data)
    for _ in range(chance.choice((1, 3))):
        name = chance.choice(frame.columns)
        row = pl.int_range(pl.len()) % chance.choice((1, 2, 97, 5000)) == 0
        cell = pl.lit(chance.choice(_CELLS))
        try:
            frame = frame.with_columns(pl.when(row).then(cell).otherwise(name).alias(name))
        except pl.exceptions.PolarsError:
            frame = frame.drop(name) if len(frame.columns) > 1 else frame
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


_REWRITES = {"nsys": _rewrite_database, "straggler": _rewrite_table}


def make_case(kind: str, seed: int, seeds: dict[str, list[bytes]]) -> tuple[bytes, str]:
    """The bytes of one case and its file name, from its number alone."""
    chance = random.Random(f"{kind} {seed}")
    others = [each for group in seeds.values() for each in group]
    data = chance.choice(seeds[kind])
    if kind in _REWRITES and chance.random() < 0.5 and len(data) > _MADE_BYTES:
        data = _REWRITES[kind](data, chance)
    else:
        data = damage(data, chance, others)
    if chance.random() < 0.2:
        data = gzip.compress(data, compresslevel=1)
        if chance.random() < 0.5:
            data = damage(data, chance, others)
    return data, chance.choice(("trace", "trace.json", "trace.gz", "t r\u00e4ce.sqlite"))


def try_case(kind: str, seed: int, seeds: dict[str, list[bytes]], folder: Path) -> str | None:
    """Import and diagnose it; what was wrong, or None."""
    from fuelline import pipeline
    from fuelline.ingest import import_trace
    from fuelline.schema.errors import FuellineError
    from fuelline.schema.run.recording import RunFacts

    try:
        data, name = make_case(kind, seed, seeds)
    except MemoryError:
        return None  # the damage itself does not fit, which says nothing of an importer
    path, run_dir = folder / name, folder / "run"
    path.write_bytes(data)
    del data
    run = RunFacts(
        run_id="fuzz", command=["import"], host=socket.gethostname(), started_wall_ns=0,
        started_ns=0,
    )  # fmt: skip
    try:
        partial = bool(seed % 2)
        pipeline.find_sources([path])
        import_trace([path], run_dir, run, partial=partial, jobs=1)
        pipeline.diagnose_as_json(run_dir)
    except FuellineError as error:
        if len(str(error)) > 2000:
            return f"a message of {len(str(error))} characters"
        if not run_dir.exists() and name not in str(error):
            return f"the message does not name the file: {error}"
    except BaseException:  # noqa: BLE001 - whatever it is, it is what we look for
        return traceback.format_exc()
    left = {each.name for each in folder.iterdir()} - {name, "run"}
    return f"left behind: {sorted(left)}" if left else None


def work(pipe: Connection, seeds: dict[str, list[bytes]], folder: Path) -> None:
    """Try cases until told to stop; silence on the other side's end of the pipe is a crash."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    os.dup2(sys.stderr.fileno(), 2)  # panics of libraries write there by themselves
    while (task := pipe.recv()) is not None:
        kind, seed = task
        own = Path(tempfile.mkdtemp(dir=folder))
        pipe.send(try_case(kind, seed, seeds, own))
        shutil.rmtree(own, ignore_errors=True)


class Fuzzer:
    """One process that is replaced when it dies or takes too long."""

    def __init__(self, seeds: dict[str, list[bytes]], folder: Path) -> None:
        self._seeds, self._folder = seeds, folder
        self._context = multiprocessing.get_context("spawn")
        self._start()

    def _start(self) -> None:
        self._pipe, other = self._context.Pipe()
        arguments = (other, self._seeds, self._folder)
        self._process = self._context.Process(target=work, args=arguments, daemon=True)
        self._process.start()
        other.close()

    def ask(self, kind: str, seed: int) -> str | None:
        """What was wrong with one case."""
        self._pipe.send((kind, seed))
        try:
            if self._answers():
                return self._pipe.recv()  # type: ignore[no-any-return]
            said = f"took more than {MOST_SECONDS:.0f} s"
        except (EOFError, OSError):
            self._process.join(5)
            said = f"the process died with {self._process.exitcode}"
        self.stop()
        self._start()
        return said

    def _answers(self) -> bool:
        """Wait for an answer; False when the process has used up its time."""
        spent = self._cpu_seconds()
        while not self._pipe.poll(1.0):
            if self._cpu_seconds() - spent > MOST_SECONDS:
                return False
        return True

    def _cpu_seconds(self) -> float:
        """Of the process: a crowded machine must not look like an endless loop."""
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        except OSError:
            return 0.0
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End the process that this one started."""
        self._process.kill()
        self._process.join()


def fuzz(seconds: float, first: int, keep: Path | None) -> dict[str, Any]:
    """Try cases of all formats in turn until the time is over."""
    seeds = {kind: read_seeds(kind) for kind in SOURCES}
    counts = dict.fromkeys(SOURCES, 0)
    found: dict[str, list[tuple[int, str]]] = {kind: [] for kind in SOURCES}
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(seeds, Path(folder))
        until = time.monotonic() + seconds
        seed = first
        while time.monotonic() < until:
            for kind in SOURCES:
                said = fuzzer.ask(kind, seed)
                counts[kind] += 1
                if said is not None:
                    found[kind].append((seed, said))
                    print(f"{kind} {seed}: {said.strip().splitlines()[-1][:200]}", flush=True)
                    if keep is not None:
                        keep.mkdir(parents=True, exist_ok=True)
                        data, _ = make_case(kind, seed, seeds)
                        (keep / f"{kind}-{seed}").write_bytes(data)
                        (keep / f"{kind}-{seed}.txt").write_text(said)
            seed += 1
        fuzzer.stop()
    return {
        "seconds": seconds,
        "cpu_seconds": round(sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])),
        "cases": sum(counts.values()),
        **{f"cases_{kind}": count for kind, count in counts.items()},
        "found": sum(map(len, found.values())),
        "passed": not any(found.values()),
    }


def main(words: list[str] | None = None) -> dict[str, Any]:
    """Ten minutes by default, one process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--repeat", nargs=2, metavar=("FORMAT", "SEED"))
    options = parser.parse_args([] if words is None else words)
    if options.repeat:
        kind, seed = options.repeat[0], int(options.repeat[1])
        seeds = {each: read_seeds(each) for each in SOURCES}
        with tempfile.TemporaryDirectory() as folder:
            print(try_case(kind, seed, seeds, Path(folder)))
        return {}
    figures = fuzz(options.seconds, options.seed, options.keep)
    results.write_section(SECTION, _section(figures))
    return figures


def _section(figures: dict[str, Any]) -> str:
    rows = "\n".join(f"| {kind} | {figures[f'cases_{kind}']:,} |" for kind in SOURCES)
    where = "real traces" if TRACES.exists() else "made traces"
    return (
        "## Fuzzing of the importers\n\n"
        f"{results.machine()}. {figures['seconds']:.0f} s ({figures['cpu_seconds']} s of CPU), "
        f"one process, {where} damaged at random, imported and diagnosed "
        f"(`python -m bench.fuzz_importers`): {figures['cases']:,} cases, "
        f"{figures['found']} that neither worked nor were refused clearly.\n\n"
        f"| format | cases |\n|---|---|\n{rows}\n"
    )


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=2))
