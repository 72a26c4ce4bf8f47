"""Reading apart: the memory of the reader is bounded, and the user sees one program."""

from __future__ import annotations

import argparse
import io
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import polars as pl
import pytest

from fuelline.cli.bounded import EACH_BYTES, MEMORY_VARIABLE, MOST_BYTES, _find_limit
from fuelline.store.home import HOME_VARIABLE
from tests.unit.ingest.remains import write_run

pytestmark = pytest.mark.integration


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


def test_a_reader_that_is_stopped_gives_the_terminal_back(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one")
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    watch = subprocess.Popen(
        [sys.executable, "-m", "fuelline", "watch", str(tmp_path / "runs" / "one")],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, HOME_VARIABLE: str(tmp_path), "TERM": "xterm"},
        start_new_session=True,
    )
    seen = b""
    until_s = time.monotonic() + 60
    while b"\x1b[?1049h" not in seen:
        assert time.monotonic() < until_s
        seen += os.read(master, 4096)
    (reader,) = Path(f"/proc/{watch.pid}/task/{watch.pid}/children").read_text().split()
    os.kill(int(reader), signal.SIGKILL)
    while b"\x1b[?1049l" not in seen:
        assert time.monotonic() < until_s
        if select.select([master], [], [], 1)[0]:
            seen += os.read(master, 4096)
    assert watch.wait(60) == 4
    assert termios.tcgetattr(slave) == before
    os.close(master)
    os.close(slave)


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


MEGABYTE = b"x" * 10**6


@pytest.mark.parametrize(
    "name",
    ["events.parquet", "spool/2.spool", "observer.journal", "fix/3.jsonl", "node-1/run.json"],
)
def test_nothing_that_lies_in_a_run_lifts_its_bound(tmp_path: Path, name: str) -> None:
    run = write_run(tmp_path / "run")
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_bytes(60 * MEGABYTE)
    options = argparse.Namespace(reads=lambda _: [run])
    assert _find_limit(options) == MOST_BYTES == 500 * 10**6


def test_the_user_allows_more_by_the_variable_or_by_more_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def limit(jobs: int) -> int:
        return _find_limit(argparse.Namespace(processes=lambda _: jobs))

    assert limit(1) == limit(2) == MOST_BYTES
    assert limit(8) == MOST_BYTES + 6 * EACH_BYTES
    monkeypatch.setenv(MEMORY_VARIABLE, "4000")
    assert limit(8) == 4000 * 10**6


ASK = f"""
import sys
from fuelline.cli.bounded import _bound_data
_bound_data({MOST_BYTES})
import polars as pl
pl.repeat(1, int(sys.argv[1]), dtype=pl.Int64, eager=True)
"""


@pytest.mark.parametrize(("rows", "is_given"), [(10**6, True), (10**8, False)])
def test_the_kernel_refuses_what_a_late_watchdog_would_not_see(rows: int, is_given: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(rows)], capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) is is_given
    assert "stack backtrace:" not in done.stderr


def test_a_refusal_names_the_command_that_allows_more(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one")
    done = fuelline(tmp_path, "diagnose", "one", "--json", **{MEMORY_VARIABLE: "20"})
    assert f"`{MEMORY_VARIABLE}=80 fuelline diagnose one --json`" in done.stderr
