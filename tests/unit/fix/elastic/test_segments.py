"""Shared memory is used again when nobody has it any more, and not before."""

import gc
import mmap
import os
import pickle
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from fuelline.fix.elastic import memory
from fuelline.fix.elastic.channel import FRAGMENT_BYTES, SocketChannel
from fuelline.fix.elastic.segments import SegmentPool, SegmentTable, allocate_collated_in


class Line(NamedTuple):
    """A worker's end and the trainer's, in one process."""

    worker: SocketChannel
    trainer: SocketChannel
    pool: SegmentPool

    def make(self, value: float, size: int = 1000) -> torch.Tensor:
        """A batch in a segment, or torch's own where there is none."""
        storage = self.pool.take(4 * size)
        made = torch.empty(0) if storage is None else torch.empty(0).set_(storage)
        return (made if made.numel() else torch.empty(size)).fill_(value)

    def send(self, message: Any) -> Any:
        """What arrives of it."""
        self.worker.put(message)
        while self.trainer.wait(10):
            try:
                return self.trainer.receive()
            except BlockingIOError:  # noqa: PERF203 - the rest of it is under way
                continue
        raise TimeoutError


@pytest.fixture
def line() -> Iterator[Line]:
    trainer = SocketChannel()
    worker = trainer.connect()
    trainer.table = SegmentTable()
    worker.pool = SegmentPool()
    yield Line(worker, trainer, worker.pool)
    trainer.close()
    worker.close()


def count_mapped() -> int:
    """Mappings of segments, on both sides."""
    gc.collect()
    return Path("/proc/self/maps").read_text().count("memfd:fuelline-batch")


def test_a_batch_that_is_gone_leaves_its_memory_to_the_next(line: Line) -> None:
    before = count_mapped()
    for number in range(50):
        assert line.send((number, line.make(number)))[1].unique().tolist() == [number]
    assert count_mapped() <= before + 4


@pytest.mark.parametrize(
    "keep",
    [
        lambda batch: batch,
        lambda batch: batch[5:7],
        lambda batch: batch.numpy()[::2],
        lambda batch: memoryview(batch.numpy()),
        lambda batch: batch.untyped_storage(),
        torch.utils.dlpack.to_dlpack,
        lambda batch: batch.view(torch.int32).reshape(10, 100).T,
    ],
    ids=["itself", "slice", "array", "buffer", "storage", "capsule", "view"],
)
def test_a_batch_that_anything_has_stays_as_it_is(line: Line, keep: Any) -> None:
    kept = [keep(line.send(line.make(number))) for number in range(10)]
    for number in range(20):
        line.send(line.make(100 + number))
    for number, each in enumerate(kept):
        if type(each).__name__ == "PyCapsule":
            each = torch.utils.dlpack.from_dlpack(each)  # noqa: PLW2901
        content = bytes(each) if isinstance(each, memoryview) else np.asarray(each).tobytes()
        if isinstance(each, torch.UntypedStorage):
            content = bytes(each.tolist())
        assert set(np.frombuffer(content, np.float32)) == {number}


def test_what_the_worker_keeps_is_not_written_over(line: Line) -> None:
    kept = [line.make(number) for number in range(5)]
    for each in kept:
        line.send(each)
    for number in range(10):
        line.send(line.make(100 + number))
    assert [each.unique().tolist() for each in kept] == [[number] for number in range(5)]


def test_a_batch_that_is_sent_again_is_the_same_memory_and_never_another_s(line: Line) -> None:
    cached = line.make(1)
    first = line.send(cached)
    second = line.send(cached)
    second[0] = 7
    assert first[0] == cached[0] == 7
    del cached, first
    for number in range(10):
        line.send(line.make(100 + number))
    assert second.unique().tolist() == [1, 7]


def test_tensors_of_one_storage_arrive_as_such(line: Line) -> None:
    batch = line.make(3)
    whole, part = line.send([batch, batch[10:20]])
    part.fill_(8)
    assert whole[10:20].unique().tolist() == [8]


def test_a_storage_has_the_size_that_was_asked_for(line: Line) -> None:
    assert line.send(line.make(1, 1003)).untyped_storage().nbytes() == 4 * 1003


def test_batches_of_other_sizes_find_memory_and_old_memory_is_dropped(line: Line) -> None:
    before = count_mapped()
    for number in range(300):
        size = 1000 + 997 * (number % 7)
        assert line.send(line.make(number, size)).tolist() == [number] * size
    for number in range(300):
        line.send(line.make(number, 100_000))
    assert len([*line.pool._list_free(), *line.pool._busy.values()]) <= 4
    assert count_mapped() <= before + 10  # the trainer's go with their numbers


def test_a_child_s_copy_of_a_batch_stays_as_it_is(line: Line) -> None:
    batch = line.send(line.make(5))
    hear, tell = os.pipe()
    said, told = os.pipe()
    child = os.fork()
    if not child:
        os.read(hear, 1)
        os.write(told, bytes([int(batch.sum() == 5000)]))
        os._exit(0)
    del batch
    for number in range(20):
        line.send(line.make(100 + number))
    os.write(tell, b"x")
    assert os.read(said, 1) == b"\1"
    os.waitpid(child, 0)
    for fd in (hear, tell, said, told):
        os.close(fd)


def test_what_a_child_lets_go_of_is_still_the_parent_s(line: Line) -> None:
    batch = line.send(line.make(5))
    child = os.fork()
    if not child:
        del batch
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    for number in range(20):
        line.send(line.make(100 + number))
    assert batch.unique().tolist() == [5]


def test_without_memory_batches_go_torch_s_way(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert line.pool.take(4000) is None
    assert line.send(line.make(4)).unique().tolist() == [4]
    assert line.send(bytes(10 * FRAGMENT_BYTES)) == bytes(10 * FRAGMENT_BYTES)
    monkeypatch.undo()
    assert line.pool.take(4000) is not None


def test_long_messages_leave_their_memory_at_once(line: Line) -> None:
    before = count_mapped()
    for number in range(20):
        message = {"rows": np.full(30_000, number), "text": ["é" * 50_000], "batch": line.make(1)}
        got = line.send(message)
        assert got["rows"].tolist() == [number] * 30_000
        assert got["text"] == message["text"]
        got["rows"][0] = -1  # an array of the trainer's own
    assert count_mapped() <= before + 8


def test_what_cannot_be_pickled_leaves_its_segment_free(line: Line) -> None:
    for _ in range(20):
        with pytest.raises((pickle.PicklingError, AttributeError)):
            line.worker.put([line.make(1), lambda: 1])
    assert len([*line.pool._list_free(), *line.pool._busy.values()]) == 1
    assert line.send(line.make(2)).unique().tolist() == [2]


def test_a_worker_at_rest_gives_its_memory_back(line: Line) -> None:
    kept = line.send(line.make(1, 500_000))
    line.send([line.make(2, 500_000), line.make(3, 500_000)])
    memory = [each.memory for each in line.trainer.table._segments.values()]
    line.pool.rest()
    assert not list(line.pool._list_free())
    assert sorted(each[0:4] != bytes(4) for each in memory) == [False, False, True]
    assert kept.unique().tolist() == [1]
    assert line.send(line.make(4)).unique().tolist() == [4]


def test_somebody_who_keeps_all_batches_keeps_them(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.pool._numbers = iter(range(8))
    kept = [line.send(line.make(number)) for number in range(40)]
    assert [each.unique().tolist() for each in kept] == [[number] for number in range(40)]
    assert len(line.pool._busy) <= 8
    before = count_mapped()
    del kept
    assert count_mapped() <= before - 32


def test_no_descriptor_stays_open(line: Line) -> None:
    line.send(line.make(1))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    kept = [line.send(line.make(number)) for number in range(30)]
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert len(kept) == 30


def refusal(*sizes: int) -> str:
    """What torch says of rows of these sizes."""
    with pytest.raises(RuntimeError) as raised:
        default_collate([torch.ones(size) for size in sizes])
    return str(raised.value)


def test_only_what_torch_s_collate_makes_is_in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared", torch.UntypedStorage._new_shared)
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: "in a worker")
    ragged = [refusal(3, 4), refusal(4, 3)]
    allocate_collated_in(SegmentPool())
    before = count_mapped()
    batch = default_collate([torch.ones(3), torch.zeros(3)])
    assert batch.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert count_mapped() == before + 1
    assert torch.UntypedStorage._new_shared(100).is_shared()
    assert default_collate([torch.ones(0), torch.ones(0)]).shape == (2, 0)
    assert [refusal(3, 4), refusal(4, 3)] == ragged


def test_a_limit_of_file_sizes_is_no_limit_of_batches(line: Line) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (mmap.PAGESIZE, hard))
    try:
        assert line.pool.take(100_000) is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_word_that_counts_is_no_part_of_a_batch(line: Line) -> None:
    for size in (mmap.PAGESIZE - memory._TAIL_BYTES, mmap.PAGESIZE, 2 * mmap.PAGESIZE):
        first = line.send(line.make(-1, size // 4))
        assert first.unique().tolist() == [-1]
        del first
        assert line.send(line.make(1, size // 4)).unique().tolist() == [1]
