"""A loader whose batches come from another process as well, by way of the real helper process.

Workers are started by a command instead of Ray. What they run is what they run under Ray.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from bench.elastic_case import Case, make_loader
from bench.remote_case import RemoteCase, RemoteScript, Zygote, differs
from torch.utils.data import DataLoader, Dataset

from fuelline.fix.elastic.iterator import build
from fuelline.fix.elastic.journal import FixJournal
from fuelline.fix.remote.crew import RemoteCrew

pytestmark = pytest.mark.integration

CASE = Case(
    size=60, batch_size=3, workers=1, spare=1, prefetch=2, sampler="shuffled", kind="nested",
    epochs=2, persistent=False, in_order=True, drop_last=False, own_collate=True, own_start=True,
    own_generator=True, break_at=None, seed=5,
)  # fmt: skip


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote() as found:
        yield found


@pytest.mark.parametrize("what", ["nothing", "worker", "node", "head"])
def test_batches_are_the_same_whatever_dies(zygote: Zygote, what: str) -> None:
    kills = () if what == "nothing" else ((8, what),)
    problem, told = differs(RemoteCase(CASE, 2, 0, kills), zygote)
    assert problem == ""
    assert told["batches"] > 0


def test_workers_stay_with_persistent_ones(zygote: Zygote) -> None:
    problem, told = differs(RemoteCase(replace(CASE, persistent=True), 1, 0, ()), zygote)
    assert problem == ""
    assert told["batches"] > 10


class Rows(Dataset[Any]):
    """Told what is special about them."""

    def __init__(self, **special: Any) -> None:
        self.special = special

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        if "only" in self.special and os.getpid() not in self._list_here():
            raise FileNotFoundError("/data/rows")
        if "by_host" in self.special and os.environ.get("FUELLINE_ELSEWHERE"):
            return torch.tensor(-index)
        return torch.tensor(index)

    def _list_here(self) -> list[int]:
        return [os.getpid()] if os.getppid() == self.special["only"] else []


class Place(Zygote):
    """One host, whose Python is started by a command."""

    def __init__(self, command: list[str]) -> None:
        self.command = command

    def address(self) -> str:
        host = {"address": "127.0.0.1", "cores": 1, "command": self.command}
        return "processes:" + json.dumps([host])


def leave(tmp_path: Path, rows: Rows, command: list[str] | None = None) -> str:
    """Why such a dataset was left alone; the loop gets its batches all the same."""
    place = Place(command or ["env", "FUELLINE_ELSEWHERE=1", sys.executable])
    script = RemoteScript(RemoteCase(CASE, 1, 1000, ()), place)
    script.crew._journal = FixJournal(str(tmp_path))
    taken = [
        int(each) for batch in build(DataLoader(rows, 2, num_workers=1), script) for each in batch
    ]
    assert taken == list(range(40))
    text = "".join(path.read_text() for path in tmp_path.glob("*.jsonl"))
    events = [json.loads(line) for line in text.splitlines()]
    assert [each["event"] for each in events] == ["remote_left"]
    return str(events[0]["why"])


def test_what_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    why = leave(tmp_path, Rows(lock=threading.Lock()))
    assert "test_crew.Rows cannot be pickled: TypeError" in why
    assert "lock" in why


def test_files_that_are_not_there_are_noticed_before_the_first_batch(tmp_path: Path) -> None:
    why = leave(tmp_path, Rows(only=os.getpid()))
    assert why == "127.0.0.1: its first batch failed: FileNotFoundError: /data/rows"


def test_batches_that_differ_are_noticed(tmp_path: Path) -> None:
    why = leave(tmp_path, Rows(by_host=True))
    assert why == "127.0.0.1: its first batches are not those of this host"


def test_a_worker_that_never_starts_is_reported(tmp_path: Path) -> None:
    assert leave(tmp_path, Rows(), ["false"]) == "127.0.0.1: its process ended with 1"


def test_another_torch_is_refused(tmp_path: Path) -> None:
    code = "import sys, torch; torch.__version__ = '1.0'; exec(sys.argv[-1])"
    why = leave(tmp_path, Rows(), [sys.executable, "-c", code])
    assert why == f"127.0.0.1: torch is {torch.__version__} on this host and 1.0 there"


def test_a_host_without_ray_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    crew = RemoteCrew("auto", 1, FixJournal(str(tmp_path)))
    crew.step(None, 3)
    text = "".join(path.read_text() for path in tmp_path.glob("*.jsonl"))
    assert "pip install 'fuelline[ray]'" in text


def test_no_worker_outlives_a_killed_helper(zygote: Zygote) -> None:
    script = RemoteScript(RemoteCase(CASE, 2, 0, ()), zygote)
    iterator = build(make_loader(CASE), script)
    workers = zygote.list_workers(script.helper)
    assert len(workers) == 2
    os.kill(script.helper, signal.SIGKILL)
    pause = threading.Event()
    for _ in range(40):
        if not zygote.list_workers(script.helper):
            break
        pause.wait(0.05)
    assert not zygote.list_workers(script.helper)
    iterator._shutdown_workers()
    script.crew.close()
