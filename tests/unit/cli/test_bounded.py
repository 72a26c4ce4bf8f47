"""Reading apart: the memory of the reader is bounded, and the user sees one program."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest

from fuelline.cli.bounded import MEMORY_VARIABLE
from fuelline.cli.store import HOME_VARIABLE
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
