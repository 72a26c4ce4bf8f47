"""Which files are ranks of one job: by time, by the size of the process group, by folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fuelline.ingest import import_trace, load_trace
from fuelline.schema.errors import InputError
from tests.unit.ingest.kineto.texts import RUN, write

if TYPE_CHECKING:
    from pathlib import Path

_MINUTES_US = 60_000_000.0
_WALL_NS = 1_712_000_000_000_000_000


def rank(path: Path, number: int, world: int | None, minute: float = 0.0) -> Path:
    """One rank's file, from this minute on."""
    path.parent.mkdir(exist_ok=True)
    start = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 5.0}
    said = {"rank": number} if world is None else {"rank": number, "world_size": world}
    return write(
        path,
        [{**start, "ts": minute * _MINUTES_US + 1.0, "args": {"device": 0, "stream": 7}}],
        distributedInfo=said,
        baseTimeNanoseconds=_WALL_NS,
    )


def jobs(tmp_path: Path, *files: Path) -> list[list[int]]:
    """Ranks of each run that these files become."""
    made = import_trace(list(files), tmp_path / "run", RUN, splits=True)
    return [load_trace(each).ranks for each in made]


def test_ranks_of_one_process_group_are_one_job(tmp_path: Path) -> None:
    files = [rank(tmp_path / f"{number}.json", number, 4) for number in (0, 1, 3)]
    assert jobs(tmp_path, *files) == [[0, 1, 3]]


def test_process_groups_of_other_sizes_are_other_jobs(tmp_path: Path) -> None:
    prefill = [rank(tmp_path / f"p{number}.json", number, 2) for number in range(2)]
    decode = [rank(tmp_path / f"d{number}.json", number, 4) for number in range(4)]
    assert jobs(tmp_path, *prefill, *decode) == [[0, 1], [0, 1, 2, 3]]


def test_the_same_ranks_in_two_folders_are_two_jobs(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "other")]
    files = [rank(folder / f"{n}.json", n, 2) for folder in folders for n in range(2)]
    assert jobs(tmp_path, *files) == [[0, 1], [0, 1]]


def test_the_same_rank_twice_in_one_folder_stays_and_is_said(tmp_path: Path) -> None:
    files = [rank(tmp_path / name, 0, 2) for name in ("a.json", "b.json")]
    (run,) = import_trace(files, tmp_path / "run", RUN, splits=True)
    assert "same-rank" in [each.code for each in load_trace(run).facts.quality]


def test_time_comes_first(tmp_path: Path) -> None:
    early = [rank(tmp_path / f"e{number}.json", number, 2) for number in range(2)]
    late = [rank(tmp_path / f"l{number}.json", number, 2, minute=30) for number in range(2)]
    assert jobs(tmp_path, *late, *early) == [[0, 1], [0, 1]]


def test_an_import_of_one_run_refuses_two_jobs(tmp_path: Path) -> None:
    files = [rank(tmp_path / f"{world}.json", 0, world) for world in (2, 4)]
    with pytest.raises(InputError, match="2 jobs: their process groups have other sizes"):
        import_trace(files, tmp_path / "run", RUN)


def test_a_rank_is_read_from_the_name_of_a_file_that_does_not_say(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.0, "dur": 5.0}
    names = ["1747-TP-3.trace.json", "worker_rank5.json"]
    files = [write(tmp_path / name, [event]) for name in names]
    assert jobs(tmp_path, *files) == [[3, 5]]


def test_files_of_one_rank_whose_clocks_cannot_be_compared_are_jobs_of_their_own(
    tmp_path: Path,
) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.0, "dur": 5.0}
    said = {"distributedInfo": {"rank": 0}}
    files = [write(tmp_path / f"{name}.json", [event], **said) for name in ("a", "b")]
    timed = [rank(tmp_path / f"{number}.json", number, 2) for number in range(2)]
    assert jobs(tmp_path, *files) == [[0], [0]]
    assert jobs(tmp_path / "more", *files, *timed) == [[0, 1], [0], [0]]


def test_files_of_several_formats_are_several_jobs(tmp_path: Path) -> None:
    sheet = tmp_path / "scrape.prom"
    sheet.write_text('DCGM_FI_DEV_GPU_UTIL{gpu="0",Hostname="h"} 5\n', encoding="utf-8")
    assert len(jobs(tmp_path, rank(tmp_path / "0.json", 0, 2), sheet)) == 2
