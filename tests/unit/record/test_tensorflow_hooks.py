"""TensorFlow's hooks on stand-ins: no TensorFlow is needed.

Under fit a batch is taken inside a graph. What stands for the clock there is the time that tf.data
says the job kept away between two batches.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fuelline.record import spool as spooling
from fuelline.schema.wire import Flag, Kind, PauseKind
from tests.integration.harness import Left, read_spools

MS = 1_000_000
HOOKS = "fuelline.record.hooks.tensorflow"


class NotFoundError(Exception):
    """As TensorFlow calls it."""


class Clock:
    """The time that hooks read."""

    def __init__(self) -> None:
        self.now_ns = 10**12

    def __call__(self) -> int:
        return self.now_ns

    def pass_ms(self, ms: float) -> None:
        self.now_ns += int(ms * MS)


class World:
    """A pipeline that makes the job wait, and keeps the account that tf.data keeps."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.wait_ms = 8.0
        self.gaps_us: list[int] = []
        self.left_ns: int | None = None
        self.taken = 0
        self.has_model = True
        self.is_eager = True

    def take(self) -> list[list[float]]:
        if self.left_ns is not None:
            self.gaps_us = [*self.gaps_us, (self.clock.now_ns - self.left_ns) // 1000][-100:]
        self.clock.pass_ms(self.wait_ms)
        self.left_ns = self.clock.now_ns
        self.taken += 1
        return [[0.0]] * 4

    def tell(self, _resource: object) -> SimpleNamespace:
        if not self.has_model:
            raise NotFoundError
        nodes = {
            7: node(7, "ParallelMapV2", [], ratio=1.0, parallelism=2.0),
            2: node(2, "BatchV2", [7], ratio=4.0),
            1: node(1, "Root", [2], ratio=1.0),
        }
        nodes[1].num_elements = self.taken
        model = SimpleNamespace(nodes=nodes, output=1, gap_times=self.gaps_us)
        return SimpleNamespace(numpy=lambda: model)


def node(key: int, name: str, inputs: list[int], ratio: float, **parameters: float) -> Any:
    known = [SimpleNamespace(name=k, state_value=v, tunable=True) for k, v in parameters.items()]
    return SimpleNamespace(
        id=key, name=name, inputs=inputs, ratio=ratio, parameters=known,
        processing_time=5, num_elements=6, buffered_elements=1,
    )  # fmt: skip


class Shaped:
    """A tensor, as far as anybody asks."""

    def __init__(self, rows: list[list[float]]) -> None:
        self.shape = len(rows), 1


@pytest.fixture
def world() -> World:
    return World(Clock())


def make_iterator(world: World) -> type:
    """As `for batch in dataset` and fit make one."""

    class OwnedIterator:
        def __init__(self, dataset: object) -> None:
            self._create_iterator(dataset)

        def _create_iterator(self, dataset: object) -> None:
            self._iterator_resource = object()

        def __iter__(self) -> "OwnedIterator":
            return self

        def __next__(self) -> Any:
            if world.taken == 3:
                raise StopIteration
            return Shaped(world.take()), 1  # a batch and its labels

        def get_next(self) -> Any:
            return self.__next__()

    return OwnedIterator


def make_tester(world: World, iterator_type: type) -> type:
    """The part of a model that trains nothing."""

    class Tester:
        test_function: Any = None
        predict_function: Any = None

        def make_test_function(self) -> None:
            def function(_iterator: object) -> str:
                world.take()
                world.clock.pass_ms(4)
                return "score"

            self.test_function = self.test_function or function

        def make_predict_function(self) -> None:
            self.predict_function = self.predict_function or (lambda _batch: "answer")

        def evaluate(self, steps: int = 0) -> None:
            self.make_test_function()
            iterator = iterator_type(self)
            for _ in range(steps):
                self.test_function(iterator)
                world.clock.pass_ms(1)
            world.clock.pass_ms(30)

        def predict(self, steps: int) -> list[str]:
            self.make_predict_function()
            iterator = iterator_type(self)
            return [self.predict_function([next(iterator)]) for _ in range(steps)]

    return Tester


def make_trainer(world: World, iterator_type: type) -> type:
    """A model of Keras: 4 ms of computing a step, 1 ms between two."""

    class TensorFlowTrainer(make_tester(world, iterator_type)):  # type: ignore[misc]
        steps_per_execution = 1
        train_function: Any = None

        def make_train_function(self) -> None:
            def function(_iterator: object) -> str:
                for _ in range(self.steps_per_execution):
                    world.take()
                    world.clock.pass_ms(4)
                return "loss"

            self.train_function = self.train_function or function

        def fit(self, steps: int, validates: bool = False) -> list[str]:
            self.make_train_function()
            iterator, losses = iterator_type(self), []
            for _ in range(steps):
                losses.append(self.train_function(iterator))
                world.clock.pass_ms(1)
            if validates:
                self.evaluate()
            return losses

    return TensorFlowTrainer


@pytest.fixture
def tf(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The few things of TensorFlow and Keras that the hooks ask for."""
    iterator = make_iterator(world)
    trainer = make_trainer(world, iterator)
    loaded = {
        "tensorflow": {"__file__": "/nowhere/tensorflow/__init__.py", "__version__": "2.99"},
        "tensorflow.python.data.ops.iterator_ops": {"OwnedIterator": iterator},
        "tensorflow.python.eager.context": {"executing_eagerly": lambda: world.is_eager},
        "tensorflow.python.ops.gen_experimental_dataset_ops": {
            "iterator_get_model_proto": world.tell
        },
        "tensorflow.core.framework.model_pb2": {
            "ModelProto": SimpleNamespace(FromString=lambda told: told)
        },
        "keras.src.backend.tensorflow.trainer": {"TensorFlowTrainer": trainer},
    }
    for name, contents in loaded.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    yield SimpleNamespace(Iterator=iterator, Model=trainer)
    for name in [name for name in sys.modules if name.startswith(HOOKS)]:
        del sys.modules[name]


@pytest.fixture
def installed(
    tf: Any, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    monkeypatch.setattr(spooling, "HOLD_NS", 0)
    from fuelline.record.hooks.tensorflow import install, pauses, pipeline, sources, training

    def act(name: str, action: Callable[[], None]) -> None:
        if name in sys.modules:
            action()

    for module in (pipeline, sources, training, pauses):
        monkeypatch.setattr(module, "monotonic_ns", world.clock)
    installation = install.install(str(tmp_path), act)
    yield installation
    installation.uninstall()


def left_by(installed: Any, tmp_path: Path) -> Left:
    installed.uninstall()
    (left,) = read_spools(tmp_path)
    assert left.faults == 0
    return left


def waits_of(left: Left) -> list[float]:
    return [record[1] / MS for record in left.of(Kind.WAIT)]


def test_waits_inside_a_graph_are_what_the_gaps_leave(
    installed: Any, tf: Any, world: World, tmp_path: Path
) -> None:
    assert tf.Model().fit(300) == ["loss"] * 300
    left = left_by(installed, tmp_path)
    assert left.steps == 300
    assert waits_of(left) == pytest.approx([8.0] * 300, abs=0.01)
    assert {record[3] for record in left.of(Kind.WAIT)} == {4}
    assert [record[6] for record in left.of(Kind.WAIT)] == list(range(300))


def test_a_wait_that_changes_is_followed_step_by_step(
    installed: Any, tf: Any, world: World, tmp_path: Path
) -> None:
    model = tf.Model()
    model.make_train_function()
    iterator = tf.Iterator(model)
    planted = [float(step % 7) for step in range(250)]
    for world.wait_ms in planted:
        model.train_function(iterator)
        world.clock.pass_ms(1)
    model.fit(0)
    left = left_by(installed, tmp_path)
    assert waits_of(left)[:-1] == pytest.approx(planted[:-1], abs=0.01)


def test_a_call_of_several_steps_is_as_many_steps(
    installed: Any, tf: Any, world: World, tmp_path: Path
) -> None:
    model = tf.Model()
    model.steps_per_execution = 4
    model.fit(50)
    left = left_by(installed, tmp_path)
    assert left.steps == 200
    assert waits_of(left) == pytest.approx([8.0] * 200, abs=0.01)


@pytest.mark.parametrize(("wait_ms", "gap_ms"), [(20.0, 4.0), (0.0, 16.0), (2.0, 10.0)])
def test_computing_that_hides_behind_the_next_batch_is_no_waiting(
    wait_ms: float, gap_ms: float, installed: Any
) -> None:
    """Four batches of 4 ms each in one call: only the gap after the last one shows computing."""
    find = sys.modules[f"{HOOKS}.training"]._find_computing
    gaps = [0, 0, 0, int(gap_ms * MS)]
    lasted = int((4 * wait_ms + gap_ms) * MS)
    assert find(gaps, lasted) == 16 * MS


def test_the_last_call_of_an_epoch_has_the_batches_that_are_left(
    installed: Any, tf: Any, world: World, tmp_path: Path
) -> None:
    step = sys.modules[f"{HOOKS}.training"].Step(installed.guest, installed.sources, 4)
    iterator = tf.Iterator(tf.Model())
    installed.sources.note(iterator).most_gets = 6

    def call(_iterator: object) -> None:
        world.take()
        world.clock.pass_ms(4)

    watched = step.wrap(call)
    watched(iterator)
    watched(iterator)
    assert left_by(installed, tmp_path).steps == 6


def test_an_iterator_that_went_on_without_an_account_has_the_usual_computing(
    installed: Any, tf: Any, world: World, tmp_path: Path
) -> None:
    model = tf.Model()
    model.fit(50)
    iterator = tf.Iterator(model)
    for number in range(200):
        world.has_model = number < 100
        world.wait_ms = 8.0 if number < 100 else 3.0
        model.train_function(iterator)
        world.clock.pass_ms(1)
    left = left_by(installed, tmp_path)
    assert waits_of(left)[-50:] == pytest.approx([3.0] * 50, abs=0.5)
    assert not [text for text in left.texts.values() if b"autotuning is off" in text]


def test_more_steps_than_gaps_are_kept_get_the_usual_computing_time(
    installed: Any, tf: Any, world: World, tmp_path: Path
) -> None:
    world.wait_ms = 0.0
    model = tf.Model()

    def quick(iterator: Any) -> None:
        world.take()
        world.clock.pass_ms(0.05)

    model.train_function = None
    model.make_train_function = lambda: None
    step = sys.modules[f"{HOOKS}.training"].Step(installed.guest, installed.sources, 1)
    watched, iterator = step.wrap(quick), tf.Iterator(model)
    for _ in range(20_000):
        watched(iterator)
    step.settle([], is_over=True)
    left = left_by(installed, tmp_path)
    assert left.steps == 20_000
    assert max(waits_of(left)) < 0.01


def test_a_pipeline_without_an_account_is_a_blindspot_and_has_no_waits(
    installed: Any, tf: Any, world: World, tmp_path: Path
) -> None:
    world.has_model = False
    tf.Model().fit(5)
    left = left_by(installed, tmp_path)
    assert left.steps == 5
    assert not left.of(Kind.WAIT)
    told = [json.loads(text) for text in left.texts.values() if b"autotuning is off" in text]
    assert "step-hook" in {each["code"] for each in told}


def test_stages_are_known_by_their_place_in_the_pipeline(
    installed: Any, tf: Any, world: World, tmp_path: Path
) -> None:
    tf.Model().fit(5)
    left = left_by(installed, tmp_path)
    places = [record[3] & 0xFF for record in left.of(Kind.NODE)]
    assert places[:3] == [0, 1, 2]
    assert [record[8] for record in left.of(Kind.NODE)][:3] == [0, 0, 2]
    told = b"".join(left.texts.values())
    assert told.index(b"Root") < told.index(b"BatchV2") < told.index(b"ParallelMapV2")


def test_a_loop_in_python_is_timed_as_it_is(
    installed: Any, tf: Any, world: World, tmp_path: Path
) -> None:
    seen = [batch.shape[0] for batch, _ in tf.Iterator(tf.Model())]
    left = left_by(installed, tmp_path)
    assert seen == [4, 4, 4]
    assert waits_of(left) == [8.0, 8.0, 8.0, 0.0]
    assert [record[3] for record in left.of(Kind.WAIT)] == [4, 4, 4, 0]
    assert left.of(Kind.WAIT)[-1][8] & Flag.END


def test_what_is_traced_is_not_watched(
    installed: Any, tf: Any, world: World, tmp_path: Path
) -> None:
    iterator = tf.Iterator(tf.Model())
    world.is_eager = False
    next(iterator)
    assert not left_by(installed, tmp_path).of(Kind.WAIT)


def test_evaluation_is_a_pause_of_the_training(
    installed: Any, tf: Any, world: World, tmp_path: Path
) -> None:
    tf.Model().fit(3, validates=True)
    (pause,) = left_by(installed, tmp_path).of(Kind.PAUSE)
    assert (pause[1], pause[4]) == (30 * MS, PauseKind.VALIDATION)


def test_evaluation_alone_is_the_work_itself(
    installed: Any, tf: Any, world: World, tmp_path: Path
) -> None:
    tf.Model().evaluate(50)
    left = left_by(installed, tmp_path)
    assert left.steps == 0
    assert not left.of(Kind.PAUSE)
    assert waits_of(left)[:-1] == pytest.approx([8.0] * 49, abs=0.01)


def test_prediction_takes_its_batches_in_python(
    installed: Any, tf: Any, world: World, tmp_path: Path
) -> None:
    assert tf.Model().predict(3) == ["answer"] * 3
    left = left_by(installed, tmp_path)
    assert left.steps == 0
    assert waits_of(left) == [8.0] * 3
    assert not [text for text in left.texts.values() if b"step-hook" in text]


def test_waits_for_python_are_what_lies_within_the_step(
    installed: Any, tf: Any, world: World, tmp_path: Path
) -> None:
    """Batches that were made before the step was begun are not waited for."""
    world.has_model = False
    sources = sys.modules[f"{HOOKS}.sources"]
    production = sources.Production({"loader": "keras.PyDataset", "num_workers": 2})
    planted = [0.0, 3.0, 9.0, 0.0, 5.0]
    installed.sources.start(production)
    begun_ns = world.clock.now_ns

    def function(_iterator: object) -> None:
        world.wait_ms = planted[world.taken]
        production.add(begun_ns, world.clock.now_ns + int(world.wait_ms * MS), 4)
        world.take()
        world.clock.pass_ms(4)

    step = sys.modules[f"{HOOKS}.training"].Step(installed.guest, installed.sources, 1)
    watched, iterator = step.wrap(function), tf.Iterator(tf.Model())
    for _ in planted:
        watched(iterator)
        world.clock.pass_ms(1)
    left = left_by(installed, tmp_path)
    assert waits_of(left) == planted
    assert {record[3] for record in left.of(Kind.WAIT)} == {4}
    assert not [text for text in left.texts.values() if b"step-hook" in text]
    assert any(b"keras.PyDataset" in text for text in left.texts.values())


def test_everything_is_put_back(installed: Any, tf: Any) -> None:
    model = tf.Model()
    model.fit(1)
    installed.uninstall()
    for owner, names in (
        (tf.Iterator, ("__next__", "get_next", "_create_iterator")),
        (tf.Model, ("fit", "evaluate", "make_train_function")),
    ):
        for name in names:
            assert not hasattr(getattr(owner, name), "__wrapped__")
    assert model.train_function(tf.Iterator(model)) == "loss"


def test_a_release_that_lacks_something_says_what(
    tf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del tf.Model.make_train_function
    from fuelline.record.hooks.tensorflow import install

    installation = install.install(
        str(tmp_path), lambda name, act: act() if name in sys.modules else None
    )
    installation.uninstall()
    (left,) = read_spools(tmp_path)
    told = b"".join(left.texts.values())
    assert b"has no keras.src.backend.tensorflow.trainer.TensorFlowTrainer.make_train" in told
