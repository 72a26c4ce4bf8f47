"""Files that hold several ranks: every rank is its own again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fuelline import pipeline
from fuelline.ingest import import_trace, load_trace
from tests.unit.ingest.kineto.texts import RUN, load, write

if TYPE_CHECKING:
    from pathlib import Path


def events(pid: object, start: float) -> list[dict[str, Any]]:
    """A kernel and its launch; every rank uses the same numbers."""
    base = {"ph": "X", "pid": pid, "tid": 7}
    kernel = {"name": "gemm", "cat": "kernel", "ts": start + 10, "dur": 20}
    launch = {"name": "cudaLaunchKernel", "cat": "cuda_runtime", "ts": start, "dur": 5}
    return [
        {**base, **kernel, "args": {"device": 0, "stream": 7, "correlation": 1}},
        {**base, **launch, "args": {"correlation": 1}},
    ]


@pytest.mark.parametrize(
    ("labels", "ranks"),
    [
        (["TP01", "TP00"], [0, 1]),
        (["TP00-DP00", "TP00-DP01", "TP01-DP00"], [0, 1, 2]),
        (["rank3", "rank7"], [3, 7]),
    ],
)
def test_ranks_in_the_names_of_processes_are_ranks(
    tmp_path: Path, labels: list[str], ranks: list[int]
) -> None:
    mixed = [
        each
        for place, label in enumerate(labels)
        for each in events(f"[{label}] {4000 + place}", 100.0 * place)
    ]
    trace = load(tmp_path, write(tmp_path / "merged.json", mixed))
    assert trace.ranks == ranks
    assert [trace.table("device", rank).height for rank in ranks] == [1] * len(ranks)
    assert [trace.table("host", rank).height for rank in ranks] == [1] * len(ranks)


def test_an_export_of_several_ranks_has_them_again(tmp_path: Path) -> None:
    for rank in range(2):
        said = {"distributedInfo": {"rank": rank, "world_size": 2}}
        write(tmp_path / f"rank{rank}.json", events(1, 30.0 * rank), **said)
    sources = [tmp_path / "rank0.json", tmp_path / "rank1.json"]
    import_trace(sources, tmp_path / "run", RUN)
    pipeline.export_perfetto(tmp_path / "run", tmp_path / "out.json")
    import_trace([tmp_path / "out.json"], tmp_path / "again", RUN)
    again = load_trace(tmp_path / "again")
    assert again.ranks == [0, 1]
    assert [again.table("device", rank).height for rank in again.ranks] == [1, 1]


def test_a_process_whose_name_has_brackets_is_no_rank(tmp_path: Path) -> None:
    trace = load(tmp_path, write(tmp_path / "one.json", events("[x]", 1.0)))
    assert trace.ranks == [0]
    assert trace.table("device", 0).height == 1
