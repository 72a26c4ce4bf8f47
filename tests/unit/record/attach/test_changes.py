import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuelline.record.attach.changes import (
    MoveNeighbour,
    Neighbour,
    Readahead,
    Wanted,
    Warm,
    propose,
)


@pytest.fixture
def neighbour() -> Iterator[int]:
    command = [sys.executable, "-S", "-c", "print(flush=True); input()"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    yield child.pid
    child.communicate()


@pytest.mark.integration
def test_a_neighbour_is_moved_and_put_back(neighbour: int) -> None:
    before = os.sched_getaffinity(neighbour)
    core = min(before)
    change = MoveNeighbour(neighbour, "python", core, 0.9)
    assert change.apply() is None
    assert os.sched_getaffinity(neighbour) == {core}
    change.undo()
    assert os.sched_getaffinity(neighbour) == before


def test_a_neighbour_that_has_ended_is_said_and_nothing_is_left() -> None:
    change = MoveNeighbour(2**22 - 1, "gone", 0, 0.9)
    problem = change.apply()
    assert problem is not None
    assert "No such file" in problem
    change.undo()


def test_readahead_is_put_back_unless_somebody_else_has_changed_it(tmp_path: Path) -> None:
    setting = tmp_path / "8:0" / "queue" / "read_ahead_kb"
    setting.parent.mkdir(parents=True)
    setting.write_text("128\n")
    change = Readahead("8:0", tmp_path)
    assert change.is_there
    assert change.apply() is None
    assert setting.read_text() == "4096"
    change.undo()
    assert setting.read_text() == "128"
    assert change.apply() is None
    setting.write_text("64")
    change.undo()
    assert setting.read_text() == "64"


def test_warming_reads_every_file_and_leaves_links_alone(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_bytes(b"x" * 5000)
    (tmp_path / "data" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_bytes(b"y" * 7000)
    change = Warm(tmp_path / "data")
    assert change.is_worth
    assert change.apply() is None
    assert change.read_bytes == 5000


def test_nothing_is_proposed_where_nothing_would_help() -> None:
    neighbours = [Neighbour(1, "busy", 1.0)]
    healthy = Wanted(
        lacks_cores=False, reads_slowly=False, folder="/", device="", neighbours=neighbours
    )
    assert propose(healthy, os.getpid()) == []
