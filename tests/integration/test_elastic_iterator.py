"""The elastic iterator gives what torch's own gives, to the bit, whatever befalls its workers."""

import gc
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from bench.elastic_case import Case, Scripted, differs, draw_case, make_loader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuelline.fix.elastic.iterator import build

PLAIN = Case(
    size=40, batch_size=2, workers=2, spare=2, prefetch=2, sampler="shuffled", kind="plain",
    epochs=2, persistent=False, in_order=True, drop_last=False, own_collate=False,
    own_start=False, own_generator=False, break_at=None, seed=1,
)  # fmt: skip


def changed(**fields: Any) -> Case:
    return Case(**{**{name: getattr(PLAIN, name) for name in PLAIN.__dataclass_fields__}, **fields})


@settings(
    max_examples=20,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(st.randoms(use_true_random=False))
def test_any_loader_gives_the_same_batches(draw: Any) -> None:
    case = draw_case(draw)
    assert not differs(case), case


@pytest.mark.parametrize(
    "case",
    [
        changed(resizes=((3, 4, 8), (9, 1, 1), (25, 3, 12))),
        changed(kills=(4, 24), persistent=True),
        changed(kills=(2, 3, 4), resizes=((3, 4, 8),)),
        changed(kind="drawing", own_start=True, persistent=True),
        changed(kind="drawing", epochs=3, break_at=5),
        changed(kind="failing", resizes=((2, 4, 8),), kills=(8,)),
        changed(sampler="own", resizes=((5, 4, 4),)),
        changed(in_order=False, resizes=((5, 4, 8),), kills=(7,)),
        changed(batch_size=None, break_at=1, persistent=True, epochs=3),
        changed(kind="wide", width=100_000, kept=5, kills=(6,), resizes=((3, 4, 8),)),
        changed(kind="wide", width=16_000, kept=1000, persistent=True),
        changed(kind="wide", width=16_000, refusals=2),
        changed(kind="ragged", width=50_000, kept=5, refusals=3),
        changed(kind="objects", width=1_000, kept=1000),
        changed(kind="arrays", width=16_000, own_collate=True, kept=5, kills=(3,)),
    ],
    ids=lambda case: f"{case.kind}-{case.width}-{len(case.resizes)}-{len(case.kills)}",
)
def test_what_must_be_the_same_is(case: Case) -> None:
    assert not differs(case)


def test_spare_workers_get_work_only_when_they_are_active() -> None:
    case = changed(kind="plain")
    controller = Scripted(case)
    iterator = build(make_loader(case), controller)
    try:
        assert len(iterator._workers) == 4
        next(iterator)
        assert {entry[0] for entry in iterator._task_info.values()} <= {0, 1}
        iterator.fl_resize(4, 8)
        assert {entry[0] for entry in iterator._task_info.values()} == {0, 1, 2, 3}
    finally:
        iterator._shutdown_workers()
    assert not any(worker.is_alive() for worker in iterator._workers)


def test_a_spare_worker_that_dies_is_not_missed() -> None:
    case = changed(epochs=1)
    iterator = build(make_loader(case), Scripted(case))
    next(iterator)
    os.kill(iterator._workers[3].pid, signal.SIGKILL)
    assert len(list(iterator)) == 19
    assert iterator._fl_dead <= {3}


def test_a_spare_worker_that_cannot_be_set_up_gives_its_work_back() -> None:
    case = changed(epochs=1)
    loader = make_loader(case)

    def start(worker_id: int) -> None:
        if worker_id > 1:
            raise IndexError("there are settings for two workers")

    loader.worker_init_fn = start
    iterator = build(loader, Scripted(case))
    iterator.fl_resize(4, 8)
    assert len(list(iterator)) == 20
    assert iterator._fl_unfit


def test_the_iterator_has_the_name_and_length_of_torchs_own() -> None:
    loader = make_loader(PLAIN)
    iterator = build(loader, Scripted(PLAIN))
    plain = iter(loader)
    assert type(iterator).__name__ == type(plain).__name__
    assert isinstance(iterator, type(plain))
    assert len(iterator) == len(plain)
    assert iterator._num_workers == plain._num_workers


def test_a_thread_that_pins_batches_passes_deaths_on() -> None:
    """What torch's pinning thread does, without an accelerator: take, pin, hand on."""
    case = changed(epochs=1, size=80)
    iterator = build(make_loader(case), Scripted(case))
    handed: queue.Queue[Any] = queue.Queue()
    iterator._data_queue = handed

    def pin() -> None:
        while not iterator._workers_done_event.is_set():
            try:
                handed.put(iterator._worker_result_queue.get(timeout=0.1))
            except queue.Empty:  # noqa: PERF203
                continue

    thread = threading.Thread(target=pin)
    thread.start()
    try:
        taken = [next(iterator) for _ in range(5)]
        os.kill(iterator._workers[0].pid, signal.SIGKILL)
        taken += list(iterator)
    finally:
        iterator._workers_done_event.set()
        thread.join()
    assert len(taken) == 40
    assert iterator._fl_dead == {0}


def test_ranks_with_a_distributed_sampler_and_two_loaders_at_once_keep_apart() -> None:
    cases = [changed(sampler="distributed", seed=seed) for seed in (1, 2)]
    iterators = [build(make_loader(case), Scripted(case)) for case in cases]
    iterators[0].fl_resize(4, 8)
    pairs = list(zip(*iterators, strict=True))
    assert len(pairs) == 10
    assert all(torch.equal(one[1], two[1]) for one, two in pairs)


class Unsendable(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        return (lambda: index) if index == 6 else index


def test_a_batch_that_cannot_be_pickled_is_an_error_at_its_place() -> None:
    """Torch's own loader prints it in the worker and then waits for ever."""
    loader = torch.utils.data.DataLoader(Unsendable(), num_workers=2, collate_fn=list)
    iterator = build(loader, Scripted(changed(epochs=1)))
    assert [next(iterator) for _ in range(6)] == [[number] for number in range(6)]
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        next(iterator)
    assert next(iterator) == [7]


def test_batches_that_dev_shm_has_no_room_for_arrive() -> None:
    """Torch's own worker dies there of a bus error."""
    job = "from tests.integration.test_elastic_iterator import iterate_wide; iterate_wide()"
    mount = "mount -t tmpfs -o size=256k none /dev/shm 2>/dev/null || exit 77"
    command = ["unshare", "-m", "sh", "-c", f'{mount}; exec "$0" -W ignore -c "$1"']
    done = subprocess.run([*command, sys.executable, job], check=False)
    if done.returncode == 77:
        pytest.skip("may not mount here")
    assert done.returncode == 0


def iterate_wide() -> None:
    """In a process that has next to no /dev/shm."""
    case = changed(kind="wide", width=100_000, epochs=1)
    batches = list(build(make_loader(case), Scripted(case)))
    assert sorted(int(batch.row[0, 0]) for batch in batches) != [0] * 20
    assert {tuple(batch.row.shape) for batch in batches} == {(2, 100_000)}


def test_a_killed_worker_s_batches_stay_and_its_memory_goes_with_them() -> None:
    case = changed(kind="wide", width=100_000, epochs=1)
    iterator = build(make_loader(case), Scripted(case))
    kept = [next(iterator) for _ in range(3)]
    were = [batch.row.clone() for batch in kept]
    os.kill(iterator._workers[0].pid, signal.SIGKILL)
    rest = list(iterator)
    assert len(rest) == 17
    assert all(torch.equal(batch.row, row) for batch, row in zip(kept, were, strict=True))
    del iterator, kept, rest
    gc.collect()
    assert "memfd:fuelline-batch" not in Path("/proc/self/maps").read_text()


def test_indices_may_be_tensors() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(12))
    drawn = [torch.tensor([first, first + 1]) for first in range(0, 12, 2)]
    loader = torch.utils.data.DataLoader(data, num_workers=2, batch_sampler=drawn)
    iterator = build(loader, Scripted(changed(epochs=1)))
    assert torch.cat([batch for (batch,) in iterator]).tolist() == list(range(12))
