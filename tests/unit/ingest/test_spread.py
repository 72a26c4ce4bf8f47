"""An import whose files are read elsewhere gives the run that it gives here, byte for byte."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fuelline.ingest.imports import find_sources, import_trace
from fuelline.schema.errors import FuellineError, InputError
from fuelline.schema.run.recording import RunFacts

RUN = RunFacts(run_id="r", command=[], host="h", started_wall_ns=1, started_ns=0)


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank in range(5):
        events = [
            {"ph": "X", "cat": "kernel", "name": f"gemm{rank}", "pid": 0, "tid": 7,
             "ts": 1e15 + 100 * number, "dur": 50 + rank, "args": {"device": 0, "stream": 7}}
            for number in range(9)
        ]  # fmt: skip
        world = {"backend": "nccl", "rank": rank, "world_size": 5}
        trace = {"schemaVersion": 1, "distributedInfo": world, "traceEvents": events}
        (folder / f"{rank}.json").write_text(json.dumps(trace))
    return folder


def spread(function: Callable[..., Any], tasks: list[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
    """The last first, as tasks of a cluster may end."""
    for number in reversed(range(len(tasks))):
        found = function(*tasks[number])
        if isinstance(found, FuellineError):
            raise found
        yield number, found


def read(run_dir: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run_dir.iterdir()}


def test_the_run_is_the_same_in_whatever_order_files_are_read(traces: Path, tmp_path: Path) -> None:
    read_bytes: list[int] = []
    sources = find_sources([traces])
    there, here = tmp_path / "there" / "r", tmp_path / "here" / "r"
    for folder in (there, here):
        folder.parent.mkdir()
    import_trace(sources, there, RUN, spread=spread, advance=read_bytes.append)
    import_trace(sources, here, RUN, jobs=1)
    assert read(there) == read(here)
    assert sum(read_bytes) == sum(path.stat().st_size for path in sources)


def test_a_damaged_file_is_refused_in_its_own_words(traces: Path, tmp_path: Path) -> None:
    whole = (traces / "3.json").read_text()
    (traces / "3.json").write_text(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"3\.json"):
        import_trace(find_sources([traces]), tmp_path / "r", RUN, spread=spread)
    assert not (tmp_path / "r").exists()


def test_a_host_that_does_not_see_the_file_is_named(traces: Path, tmp_path: Path) -> None:
    sources = find_sources([traces])

    def move_away(function: Any, tasks: Any) -> Iterator[tuple[int, Any]]:
        shutil.move(traces / "2.json", tmp_path / "elsewhere.json")
        return spread(function, tasks)

    with pytest.raises(InputError, match=r"2\.json is not there on .*share"):
        import_trace(sources, tmp_path / "r", RUN, spread=move_away)


def test_parts_that_were_written_to_another_disk_are_missed(traces: Path, tmp_path: Path) -> None:
    def write_elsewhere(function: Any, tasks: Any) -> Iterator[tuple[int, Any]]:
        for number, found in spread(function, tasks):
            draft = tasks[number][2]
            for part in found.parts:
                (draft / part.draft_name).unlink()
            yield number, found

    with pytest.raises(InputError, match="Choose a folder with -o that all hosts share"):
        import_trace(find_sources([traces]), tmp_path / "r", RUN, spread=write_elsewhere)
