"""What a pack and the cache served is counted in each process, and said in the report."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from fuelline.fix.files.served_counts import ServedCounts
from fuelline.ingest import read_served
from fuelline.report.diagnosis.writer import write_document
from fuelline.report.document import Items
from fuelline.schema.diagnosis.findings import ServedFiles
from fuelline.schema.run.run_folder import COPIED, HITS, PACKED, PASSED, SERVED_DIR
from tests.golden.freeze import make_diagnoses

if TYPE_CHECKING:
    from pathlib import Path


def served(packed: int = 0, hits: int = 0, copied: int = 0, passed: int = 0) -> ServedFiles:
    return ServedFiles(packed=packed, hits=hits, copied=copied, passed=passed)


def test_processes_are_added_up_and_a_forked_worker_counts_its_own(tmp_path: Path) -> None:
    counts = ServedCounts(str(tmp_path))
    for what in (PACKED, HITS, HITS, COPIED, PASSED):
        counts.add(what)

    def work() -> None:
        for _ in range(10):
            counts.add(HITS)

    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join()
    assert worker.exitcode == 0
    counts.write()
    assert read_served([tmp_path]) == served(1, 12, 1, 1)
    assert len(list((tmp_path / SERVED_DIR).iterdir())) == 2


def test_a_folder_that_cannot_be_written_does_not_reach_the_job(tmp_path: Path) -> None:
    counts = ServedCounts(str(tmp_path / "none"))
    counts.add(PACKED)
    counts.add(PACKED)
    assert not counts._is_able
    assert read_served([tmp_path / "none"]) is None


@pytest.mark.parametrize("content", [b"", b"x y z w", b"1 2 3", b"9" * 5000, b"-1 -1 -1 -1"])
def test_what_no_process_of_ours_wrote_counts_for_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / SERVED_DIR).mkdir()
    (tmp_path / SERVED_DIR / "17").write_bytes(content)
    (tmp_path / SERVED_DIR / "18").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / SERVED_DIR / "19")
    assert read_served([tmp_path]) is None


JOB = """
import sys
for _ in range(3):
    for name in ("a", "b"):
        with open(f"{sys.argv[1]}/{name}", "rb") as file:
            assert file.read() == name.encode()
"""


def test_a_job_with_a_cache_says_what_came_from_it(tmp_path: Path) -> None:
    source = tmp_path / "slow"
    source.mkdir()
    for name in ("a", "b"):
        (source / name).write_bytes(name.encode())
        os.utime(source / name, (1000, 1000))
    (tmp_path / "job.py").write_text(
        "import time; time.sleep(2.2)" + JOB
    )  # the cache leaves new files alone
    words = ["run", "--run-dir", str(tmp_path / "run"), "--cache", str(tmp_path / "cache")]
    words += ["--cache-from", str(source), "--quiet", str(tmp_path / "job.py"), str(source)]
    environment = {**os.environ, "FUELLINE_HOME": str(tmp_path / "home")}
    fuelline = [sys.executable, "-m", "fuelline"]
    subprocess.run([*fuelline, *words], check=True, env=environment)
    asked = [*fuelline, "diagnose", "--json", str(tmp_path / "run")]
    done = subprocess.run(asked, check=True, env=environment, capture_output=True)
    assert json.loads(done.stdout)["served"] == msgspec.to_builtins(served(hits=4, copied=2))


def lines(files: ServedFiles | None) -> list[str]:
    diagnosis = msgspec.structs.replace(make_diagnoses()["healthy"], served=files)
    blocks = write_document(diagnosis).blocks
    items = [item for block in blocks if isinstance(block, Items) for item in block.items]
    return [words for item in items for words in (item.text, *item.details)]


def test_the_report_says_what_was_served() -> None:
    assert "12,000 files read from the pack" in lines(served(packed=12_000))
    said = lines(served(hits=80, copied=15, passed=5))
    assert "80 % of 100 files read from the cache" in said
    assert "15 files copied into it" in said
    assert any(words.startswith("5 files left to the slow mount") for words in said)
    assert not any("cache" in words for words in lines(None))
