"""A fetch that leaves a trace in its process is noticed; one that does not is not."""

import functools
import gc
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fuelline.fix.elastic.purity import PurityCheck, owns_generator


class Rows:
    def __init__(self) -> None:
        self.count = 0
        self.part: Any = None


TRACES: dict[str, Callable[[Rows], Any]] = {
    "random": lambda _: random.random(),
    "shuffle": lambda _: random.shuffle([1, 2, 3]),
    "a whole state of random": lambda _: [random.getrandbits(32) for _ in range(624)],
    "torch": lambda _: torch.rand(1),
    "numpy": lambda _: np.random.rand(),
    "seeding": lambda _: np.random.seed(5),
    "a counter": lambda rows: setattr(rows, "count", rows.count + 1),
}


@pytest.mark.parametrize("trace", TRACES)
def test_a_trace_is_noticed_once(trace: str) -> None:
    rows = Rows()
    watcher = PurityCheck(rows)
    watcher.settle()
    TRACES[trace](rows)
    assert watcher.has_changed()
    assert not watcher.has_changed()


@pytest.mark.parametrize(
    "harmless",
    [
        lambda rows: setattr(rows, "part", {"opened": "file"}),
        lambda _: random.Random(3).random(),
        lambda _: np.random.default_rng(3).random(),
        lambda _: torch.rand(1, generator=torch.Generator()),
        lambda _: torch.ones(3).sum(),
    ],
)
def test_what_leaves_no_trace_is_not(harmless: Callable[[Rows], Any]) -> None:
    rows = Rows()
    watcher = PurityCheck(rows)
    watcher.settle()
    harmless(rows)
    assert not watcher.has_changed()


def test_quick_fetches_are_looked_at_now_and_then() -> None:
    watcher = PurityCheck(Rows())
    seen = []
    for _ in range(300):
        watcher.begin()
        random.random()
        seen.append(watcher.end(20_000))
    assert 2 <= sum(seen) < 30


def test_a_draw_in_a_fetch_that_was_not_looked_at_is_seen_at_the_next_look() -> None:
    watcher = PurityCheck(Rows())
    assert not watcher.end(1_000_000_000)  # slow, so the next one is looked at, too
    assert not watcher.end(20_000)  # quick, so the next ones are not
    random.random()
    seen = [watcher.end(20_000) for _ in range(300)]
    assert sum(seen) == 1
    assert not seen[0]


@pytest.mark.parametrize(
    "generator", [random.Random(1), torch.Generator(), np.random.default_rng(1)]
)
def test_a_generator_that_hangs_on_a_dataset_is_found(generator: Any) -> None:
    rows, inner = Rows(), Rows()
    inner.part = generator
    rows.part = {"transforms": [inner]}
    assert owns_generator(rows)
    assert owns_generator(lambda: inner)
    assert not owns_generator(Rows(), None)


def test_no_code_of_the_job_runs_when_a_dataset_is_looked_into() -> None:
    class Touchy:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(f"asked for {name}")

        @property
        def costly(self) -> Any:
            raise RuntimeError("computed")

    rows = Rows()
    rows.part = [Touchy(), functools.partial(max, Touchy())]
    assert not owns_generator(rows)
    assert not PurityCheck(rows).has_changed()


def test_looking_at_a_dataset_leaves_its_attributes_where_they_are() -> None:
    """Python 3.11 and 3.12 read them slower once somebody has asked for `__dict__`."""
    rows = Rows()
    before = [type(each) for each in gc.get_referents(rows)]
    PurityCheck(rows).has_changed()
    assert [type(each) for each in gc.get_referents(rows)] == before
