"""A tf.data pipeline under `--fix`, on stand-ins: no TensorFlow is needed.

What stands for tf.data keeps an account of its stages and can be saved, unless it says that it
cannot.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fuelline.fix.datasets import entry, seam, tuner
from fuelline.fix.datasets.entry import DatasetFixes
from fuelline.fix.elastic.journal import FixJournal

MS = 1_000_000
READ_MS, STEP_MS = 80.0, 10.0


class NotFoundError(Exception):
    """No account, as TensorFlow says it."""


class FailedPreconditionError(Exception):
    """State that cannot be saved, likewise."""


class World:
    """A clock, and how tf.data is built here."""

    def __init__(self) -> None:
        self.now_ns = 10**12
        self.is_stateful = False
        self.can_restore = True
        self.own_pool = 2
        self.made: list[int] = []
        self.names = ("Root", "ParallelMapV2", "Prefetch")

    def __call__(self) -> int:
        return self.now_ns


class Dataset:
    """Counts from 0; a batch takes READ_MS of one thread's waiting."""

    def __init__(self, world: World, pool: int = 0, *, ordered: bool | None = None) -> None:
        self.world, self.pool, self.ordered, self.buffers = world, pool, ordered, 0

    def options(self) -> Any:
        threading = SimpleNamespace(private_threadpool_size=self.pool or None)
        return SimpleNamespace(threading=threading, deterministic=self.ordered)

    def with_options(self, options: Any) -> "Dataset":
        return Dataset(self.world, options.threading.private_threadpool_size)

    def prefetch(self, _size: int) -> "Dataset":
        self.buffers += 1
        return self


class Resource:
    """An iterator in C++."""

    def __init__(self, world: World, pool: int) -> None:
        self.world, self.pool, self.at, self.busy_ns = world, pool, 0, 0
        self.gaps: list[int] = []
        self.is_restored = False


def make_owner(world: World) -> type:
    class OwnedIterator:
        def __init__(self, dataset: Dataset) -> None:
            self._create_iterator(dataset)

        def _create_iterator(self, dataset: Dataset) -> None:
            pool = dataset.pool or world.own_pool
            world.made.append(pool)
            self._iterator_resource = Resource(world, pool)

        def __next__(self) -> int:
            resource = self._iterator_resource
            world.now_ns += int(max(READ_MS / resource.pool - STEP_MS, 0.01) * MS)
            resource.busy_ns += int(READ_MS * MS)
            resource.at += 1
            return resource.at

        def get_next(self) -> int:
            return self.__next__()

    return OwnedIterator


def modules(world: World, owner: type) -> dict[str, ModuleType]:
    def save(resource: Resource, _policy: int) -> int:
        if world.is_stateful:
            raise FailedPreconditionError("{{node x}} RandomUniform is stateful. [Op:Save]")
        return resource.at

    def restore(resource: Resource, state: int) -> None:
        if not world.can_restore:
            raise ValueError("no such key")
        resource.at, resource.is_restored = state, True

    def tell(resource: Resource) -> Any:
        if resource.is_restored:
            raise NotFoundError
        nodes = {
            number: SimpleNamespace(
                name=name,
                processing_time=resource.busy_ns if "Map" in name else 0,
                buffered_bytes=0,
            )
            for number, name in enumerate(world.names)
        }
        return SimpleNamespace(numpy=lambda: SimpleNamespace(nodes=nodes, gap_times=[10_000] * 100))

    made = {
        seam.ITERATORS: {"OwnedIterator": owner},
        "tensorflow.python.ops.gen_dataset_ops": {
            "serialize_iterator": save,
            "deserialize_iterator": restore,
        },
        "tensorflow.python.ops.gen_experimental_dataset_ops": {"iterator_get_model_proto": tell},
        "tensorflow.core.framework.model_pb2": {
            "ModelProto": SimpleNamespace(FromString=lambda told: told)
        },
        "tensorflow.python.data.ops.options": {
            "Options": lambda: SimpleNamespace(
                threading=SimpleNamespace(private_threadpool_size=None)
            )
        },
        "tensorflow.python.eager.context": {"executing_eagerly": lambda: True},
    }
    found = {}
    for name, parts in made.items():
        found[name] = ModuleType(name)
        vars(found[name]).update(parts)
    return found


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def fixes(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DatasetFixes]:
    owner = make_owner(world)
    for name, module in modules(world, owner).items():
        monkeypatch.setitem(sys.modules, name, module)
    for module in (entry, tuner):
        monkeypatch.setattr(module, "monotonic_ns", world)
    monkeypatch.setattr(seam.os, "sched_getaffinity", lambda _: set(range(world.own_pool)))
    monkeypatch.setattr(tuner, "count_cores", lambda **_: 2.0)
    made = DatasetFixes(FixJournal(str(tmp_path)))
    made.follow(owner)
    yield made
    made.close()


def train(world: World, iterator: Any, batches: int, *, step_ms: float = STEP_MS) -> list[int]:
    """As a loop takes them; the step computes a little."""
    taken = []
    for _ in range(batches):
        taken.append(next(iterator))
        world.now_ns += int(step_ms * MS)
    return taken


def iterate(fixes: DatasetFixes, dataset: Dataset) -> Any:
    return fixes._owner(dataset)


def events(tmp_path: Path, kind: str) -> list[dict[str, Any]]:
    (file,) = tmp_path.glob("*.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [row for row in rows if row["event"] == kind]


def test_a_pool_that_waits_grows_in_mid_epoch_and_no_batch_is_lost(
    world: World, fixes: DatasetFixes, tmp_path: Path
) -> None:
    iterator = iterate(fixes, Dataset(world))
    assert train(world, iterator, 400) == list(range(1, 401))
    (change, *_) = events(tmp_path, "change")
    assert change["active"] > 2
    assert world.made[:2] == [2, change["active"]]
    (trial,) = events(tmp_path, "trial")
    assert trial["verdict"] == "kept"


def test_the_next_epoch_begins_with_the_pool_that_was_kept(
    world: World, fixes: DatasetFixes
) -> None:
    dataset = Dataset(world)
    train(world, iterate(fixes, dataset), 400)
    kept = world.made[-1]
    iterate(fixes, dataset)
    assert world.made[-1] == kept > 2


def test_a_job_that_does_not_wait_is_left_as_it_is(
    world: World, fixes: DatasetFixes, tmp_path: Path
) -> None:
    train(world, iterate(fixes, Dataset(world, pool=16)), 300, step_ms=50)
    assert world.made == [16]
    assert events(tmp_path, "change") == []


def test_what_cannot_be_saved_keeps_its_pool_and_says_why(
    world: World, fixes: DatasetFixes, tmp_path: Path
) -> None:
    world.is_stateful = True
    dataset = Dataset(world)
    assert train(world, iterate(fixes, dataset), 300) == list(range(1, 301))
    iterate(fixes, dataset)
    assert world.made == [2, 2]
    (left,) = events(tmp_path, "left")
    assert "RandomUniform is stateful" in left["why"]


def test_a_pipeline_that_cannot_be_restored_goes_on_where_it_was(
    world: World, fixes: DatasetFixes, tmp_path: Path
) -> None:
    world.can_restore = False
    assert train(world, iterate(fixes, Dataset(world)), 300) == list(range(1, 301))
    (left,) = events(tmp_path, "left")
    assert "no such key" in left["why"]


def test_a_cache_in_a_file_waits_for_the_next_iterator(
    world: World, fixes: DatasetFixes, tmp_path: Path
) -> None:
    world.names = ("Root", "FileCache", "ParallelMapV2", "Prefetch")
    dataset = Dataset(world)
    train(world, iterate(fixes, dataset), 200)
    assert world.made == [2]
    (held, *_) = events(tmp_path, "held")
    iterate(fixes, dataset)
    assert world.made[-1] == held["active"] > 2


def test_batches_in_any_order_are_left_alone(
    world: World, fixes: DatasetFixes, tmp_path: Path
) -> None:
    train(world, iterate(fixes, Dataset(world, ordered=False)), 200)
    assert world.made == [2]
    (left,) = events(tmp_path, "left")
    assert "deterministic=False" in left["why"]


def test_an_exception_of_the_job_passes_through(world: World, fixes: DatasetFixes) -> None:
    iterator = iterate(fixes, Dataset(world))
    train(world, iterator, 3)
    iterator._iterator_resource.pool = 0
    with pytest.raises(ZeroDivisionError):
        next(iterator)


def test_a_step_of_fit_counts_all_its_batches(world: World, fixes: DatasetFixes) -> None:
    iterator = iterate(fixes, Dataset(world))
    plain = fixes._owner.__next__.__wrapped__  # type: ignore[attr-defined]

    def step(taken: Any) -> int:
        last = [plain(taken) for _ in range(4)][-1]
        world.now_ns += int(4 * STEP_MS * MS)
        return int(last)

    watched = fixes.wrap_step(step, SimpleNamespace(steps_per_execution=4))
    assert [watched(iterator) for _ in range(50)] == list(range(4, 201, 4))
    assert world.made[-1] > 2
