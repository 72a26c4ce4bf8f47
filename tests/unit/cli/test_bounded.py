"""Reading apart: the memory of the reader is bounded, and the user sees one program."""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest

from fuelline.cli.bounded import (
    BASE_BYTES,
    MEMORY_VARIABLE,
    TIMES_DISK,
    _count_bytes,
    _Limit,
    _walk,
)
from fuelline.store.home import HOME_VARIABLE
from tests.unit.ingest.remains import write_run

if TYPE_CHECKING:
    from pathlib import Path


def fuelline(home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fuelline", *words],
        env={**os.environ, HOME_VARIABLE: str(home), **more},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_reader_that_takes_too_much_is_stopped_with_one_sentence(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one")
    done = fuelline(tmp_path, "diagnose", **{MEMORY_VARIABLE: "20"})
    assert done.returncode == 3
    assert "more than 20 MB of memory" in done.stderr
    assert MEMORY_VARIABLE in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout


def test_a_bound_that_is_no_number_is_refused(tmp_path: Path) -> None:
    done = fuelline(tmp_path, "diagnose", **{MEMORY_VARIABLE: "much"})
    assert done.returncode == 2
    assert f"{MEMORY_VARIABLE}=much" in done.stderr


def test_an_import_that_was_stopped_leaves_no_draft(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text('{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":2}]}')
    out = tmp_path / "out"
    done = fuelline(
        tmp_path, "import", str(trace), "-o", str(out / "run"), **{MEMORY_VARIABLE: "50"}
    )
    assert done.returncode == 3
    assert not out.exists() or not list(out.iterdir())


@pytest.fixture
def bomb(tmp_path: Path) -> Path:
    """Straggler columns of equal rows: some kilobytes that would become gigabytes."""
    rows = 4_000_000
    zeros = pl.repeat(0, rows, dtype=pl.Int64, eager=True)
    names = ("dp_rank", "stage", "rank", "step", "seq_id", "start_ts", "duration")
    frame = pl.DataFrame(dict.fromkeys(names, zeros)).with_columns(optype=pl.lit("gc"))
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd", statistics=False)
    (tmp_path / "bomb.parquet").write_bytes(buffer.getvalue())
    return tmp_path / "bomb.parquet"


def test_a_parquet_bomb_is_refused_by_what_it_claims(tmp_path: Path, bomb: Path) -> None:
    done = fuelline(tmp_path, "import", str(bomb))
    assert done.returncode == 3
    assert "claims 4000000 rows" in done.stderr
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def limit(*paths: Path, **more: bool) -> _Limit:
    return _Limit(argparse.Namespace(reads=lambda _: paths, **more))


MEGABYTE = b"x" * 10**6


def test_what_lies_beside_a_run_does_not_lift_its_bound(tmp_path: Path) -> None:
    write_run(tmp_path)
    before = limit(tmp_path)
    assert BASE_BYTES < before.bytes < BASE_BYTES + TIMES_DISK * 10**6
    for name in ("junk", "run.json.bak", "spool/junk", "zoom/trace.json", "node-1/spool/a/b.spool"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(MEGABYTE)
    assert limit(tmp_path).bytes == before.bytes
    for name in ("node-1/run.json", "node-1/spool/2.spool", "fix/3.jsonl", "events.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(MEGABYTE)
    assert limit(tmp_path).bytes >= before.bytes + TIMES_DISK * 4 * 10**6


def test_all_files_of_a_folder_of_traces_count(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/trace.pt").write_bytes(MEGABYTE)
    assert _count_bytes([tmp_path], reads_all=True) >= 10**6
    assert _count_bytes([tmp_path / "a/b/trace.pt"], reads_all=True) >= 10**6


def test_much_data_does_not_allow_all_the_memory_there_is(tmp_path: Path) -> None:
    (tmp_path / "events.parquet").write_bytes(60 * MEGABYTE)
    assert limit(tmp_path).bytes < 1_400 * 10**6


def test_folders_that_no_run_has_are_not_walked(tmp_path: Path) -> None:
    (tmp_path / "lib/deep").mkdir(parents=True)
    (tmp_path / "spool").mkdir()
    (tmp_path / "lib/deep/file").touch()
    (tmp_path / "spool/1.spool").touch()
    found = [os.path.relpath(path, tmp_path) for path in _walk(str(tmp_path), reads_all=False)]
    assert found == ["spool", "spool/1.spool"]


def test_processes_together_take_no_more_than_a_base_each_and_what_the_disk_allows(
    tmp_path: Path,
) -> None:
    one = limit(tmp_path)
    assert one.is_kept([BASE_BYTES])
    assert not one.is_kept([BASE_BYTES + 1])
    assert one.is_kept([BASE_BYTES, BASE_BYTES])
    (tmp_path / "events.parquet").write_bytes(10 * MEGABYTE)
    more = limit(tmp_path)
    assert more.is_kept([more.bytes, BASE_BYTES])
    assert not more.is_kept([more.bytes, more.bytes])
