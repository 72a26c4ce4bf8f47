"""`fuelline.record()`: sees what `fuelline run` sees, and leaves the process as it was."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import time
from multiprocessing import forkserver, resource_tracker
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, Dataset, dataloader
from torch.utils.data._utils import fetch
from torch.utils.data._utils import pin_memory as pinning

import fuelline
from fuelline.record import inside
from fuelline.record.hooks.torch import seam
from fuelline.record.hooks.waits import SOURCE_ID
from fuelline.schema.wire import RUN_DIR_VARIABLE
from tests.integration.harness import JOBS

STEPS = 30


class Rows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 2 * STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), float(index))


def make_loader(workers: int = 1, **more: Any) -> DataLoader[torch.Tensor]:
    context = {"multiprocessing_context": "fork"} if workers else {}
    return DataLoader(Rows(), batch_size=2, num_workers=workers, **{**context, **more})


def train(loader: DataLoader[torch.Tensor] | None = None) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader or make_loader():
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def look_around() -> dict[str, Any]:
    """Everything that hooks replace or add to, and what else a guest could leave behind."""
    owners = (
        torch, torch.autograd, torch.serialization, torch.Tensor, torch.cuda, torch.accelerator,
        dataloader.DataLoader, dataloader._BaseDataLoaderIter, fetch._MapDatasetFetcher,
        fetch._IterableDatasetFetcher, pinning, ForkingPickler, torch.distributed,
        torch.distributed.distributed_c10d, torch.nn.parallel.distributed,
        torch.optim.Optimizer,
    )  # fmt: skip
    left = {
        f"{owner.__name__}.{name}": value for owner in owners for name, value in vars(owner).items()
    }
    return left | {
        "environment": dict(os.environ),
        "finders": list(sys.meta_path),
        "collections": list(gc.callbacks),
        "optimizer hooks": dict(optimizers._global_optimizer_post_hooks),
        "children": list_children(),
    }


def list_children() -> list[str]:
    return [pid for thread in Path("/proc/self/task").iterdir() for pid in _started_by(thread)]


def _started_by(thread: Path) -> list[str]:
    try:
        return (thread / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
        return []


def list_descriptors() -> list[str]:
    links = list(Path("/proc/self/fd").iterdir())
    return sorted(str(link.readlink()) for link in links if os.path.lexists(link))


def name_blindspots(run: fuelline.Run) -> set[str]:
    return {spot.what for spot in run.blindspots}


@pytest.fixture(autouse=True)
def warm(store: Path) -> None:
    train()  # torch sets some things up at the first step
    gc.collect()
    stop_what_others_left()


def stop_what_others_left() -> None:
    """End what tests before these had in the same process: multiprocessing's servers, workers."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]
    until = time.monotonic() + 5
    while list_children() and time.monotonic() < until:
        multiprocessing.active_children()  # reaps those that have ended
        time.sleep(0.05)


def test_the_block_and_its_workers_are_recorded() -> None:
    with fuelline.record() as run:
        train()
    waits, fetches = run.tables["waits"], run.tables["fetches"]
    assert waits.height == STEPS + 1
    assert fetches["samples"].sum() == 2 * STEPS
    assert os.getpid() not in fetches["pid"].to_list()
    assert run.tables["step_ends"].height == STEPS
    assert run.diagnose().steps.count >= STEPS - 2
    assert run.facts.exit_code == 0
    # A block of a tenth of a second may be over before the observer has seen anything.
    assert name_blindspots(run) <= {"thread states, host and cgroup counters"}


def test_hooks_that_do_not_fit_this_torch_are_named_in_the_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(seam.PARTS, "NUM_YIELDED", f"{seam.PARTS['NUM_YIELDED']}_of_before")
    with fuelline.record() as run:
        train()
    assert run.tables["waits"].filter(pl.col("source_id") != SOURCE_ID).height == 0
    assert run.tables["step_ends"].height == STEPS
    spots = {spot.what: spot.why for spot in run.diagnose().blindspots}
    missing = "torch.utils.data.dataloader._BaseDataLoaderIter._num_yielded_of_before"
    assert spots["hooks loader"] == f"torch {torch.__version__} has no {missing}"


def test_the_observer_is_beside_it_and_no_part_of_it() -> None:
    with fuelline.record() as run:
        (observer,) = list_children()
        train()
        deadline_s = time.monotonic() + 20
        while time.monotonic() < deadline_s and b"core.spin" not in read_journal(run.path):
            train()
    assert run.tables["host"].height
    assert os.getpid() in run.tables["seen"]["pid"].to_list()
    assert int(observer) not in run.tables["seen"]["pid"].to_list()
    assert not Path(f"/proc/{observer}").exists()


def read_journal(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in path.glob("*.journal"))


@pytest.mark.parametrize("workers", [0, 1])
def test_everything_is_as_it_was_afterwards(workers: int) -> None:
    before = look_around()
    with fuelline.record() as run:
        assert look_around() != before
        train(make_loader(workers))
    after = look_around()
    assert [
        name for name in before if before[name] is not after[name] and before[name] != after[name]
    ] == []
    assert before.keys() == after.keys()
    assert run.tables["waits"].height == STEPS + 1


def test_no_descriptor_is_left() -> None:
    with fuelline.record():
        train()
    gc.collect()
    before = list_descriptors()
    for _ in range(2):
        with fuelline.record():
            train()
    gc.collect()
    assert list_descriptors() == before


def test_an_exception_passes_and_everything_is_as_it_was() -> None:
    before = look_around()
    with pytest.raises(ZeroDivisionError), fuelline.record() as run:  # noqa: PT012 - the block
        train()
        raise ZeroDivisionError
    assert look_around() == before
    assert run.facts.exit_code == 1
    assert run.tables["waits"].height == STEPS + 1


def test_it_can_be_done_again_with_a_loader_that_lives_on() -> None:
    loader = make_loader(persistent_workers=True)
    with fuelline.record() as first:
        train(loader)
    spool = max((first.path / "spool").iterdir(), key=lambda path: path.name)
    size = spool.stat().st_size
    train(loader)
    assert spool.stat().st_size == size, "the worker has noticed that the recording is over"
    with fuelline.record() as second:
        train(loader)
    assert first.path != second.path
    assert first.tables["fetches"].height == STEPS
    assert second.tables["waits"].height == STEPS + 1
    assert second.tables["waits"]["source_id"].unique().to_list() == [1]
    assert second.tables["fetches"].height == 0
    assert "a process that ran before fuelline.record() was called" in name_blindspots(second)


def test_a_recording_within_another_is_refused() -> None:
    with fuelline.record() as run:
        with pytest.raises(fuelline.UsageError, match=r"already.*Nothing was started.*end first"):
            fuelline.record().__enter__()
        train()
    assert run.tables["waits"].height == STEPS + 1


def test_a_recording_within_fuelline_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_DIR_VARIABLE, "/runs/1")
    monkeypatch.setitem(sys.modules, "fuelline_watch", sys)
    with pytest.raises(fuelline.UsageError, match=r"`fuelline run` already, into /runs/1"):
        fuelline.record().__enter__()


def test_workers_that_are_spawned_are_a_blindspot() -> None:
    with fuelline.record() as run:
        train(make_loader(multiprocessing_context="spawn"))
    assert "loader workers that were not forked" in name_blindspots(run)
    assert run.tables["fetches"].height == 0


def test_a_child_that_leaves_through_the_block_ends_nothing() -> None:
    with fuelline.record() as run:
        recording = inside._current[0]
        pid = os.fork()
        if pid == 0:
            recording.stop(5)
            os._exit(0)
        os.waitpid(pid, 0)
        train()
    assert run.facts.exit_code == 0
    assert run.tables["waits"].height == STEPS + 1


def test_where_nothing_can_be_written_the_block_runs_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = look_around()
    block = fuelline.record(tmp_path / "file" / "run")
    with pytest.warns(RuntimeWarning, match=r"not recorded.*runs anyway"), block as run:
        assert look_around() == before
    with pytest.raises(fuelline.FuellineError):
        run.diagnose()


def test_a_folder_that_exists_is_not_touched(tmp_path: Path) -> None:
    with pytest.raises(fuelline.UsageError, match="already exists"):
        fuelline.record(tmp_path).__enter__()
    assert list(tmp_path.iterdir()) == [tmp_path / "home"] or not list(tmp_path.iterdir())


LATE_IMPORT = """
import sys, fuelline
sys.path.insert(0, sys.argv[2])
assert "torch" not in sys.modules
with fuelline.record(sys.argv[1]):
    import train
    print(train.train(num_workers=2, multiprocessing_context="fork"))
"""
PLAIN = """
import sys
sys.path.insert(0, sys.argv[2])
import train
print(train.train(num_workers=2, multiprocessing_context="fork"))
"""


def test_a_block_that_imports_torch_computes_the_same_bit_for_bit(tmp_path: Path) -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "run"), str(JOBS)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for script in (LATE_IMPORT, PLAIN)
    ]
    assert outputs[0] == outputs[1]
    run = fuelline.load(tmp_path / "run")
    assert run.tables["waits"].height > 10
    assert run.tables["fetches"]["worker"].unique().sort().to_list() == [0, 1]
