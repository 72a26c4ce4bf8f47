"""`fuelline.watch`: what it gives is the source's own, and what a pass took is recorded."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import fuelline
from fuelline.record.hooks.guest import Framework, Guest, join
from fuelline.record.hooks.sources import count_samples
from fuelline.schema.wire import Kind
from tests.integration.harness import read_spools


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    guest = join(str(tmp_path), Framework("nothing", "/nowhere/", (), bool))
    yield guest
    guest.leave()


def test_elements_length_and_attributes_are_the_sources_own() -> None:
    source = [3, 1, 2]
    watched = fuelline.watch(source)
    assert (list(watched), list(watched), len(watched)) == (source, source, 3)
    assert watched.index(1) == 1
    assert not fuelline.watch([])
    with pytest.raises(TypeError):
        len(fuelline.watch(iter(source)))
    with pytest.raises(TypeError):
        iter(fuelline.watch(5))  # type: ignore[arg-type]


def test_an_early_stop_closes_a_generator_and_its_exceptions_pass(guest: Guest) -> None:
    ends = []

    def batches() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            ends.append("closed")

    for batch in fuelline.watch(batches()):
        assert batch == 1
        break
    assert ends == ["closed"]

    def fail() -> Iterator[int]:
        yield 1
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(fuelline.watch(fail()))
    assert guest.waiting == set()


def test_each_batch_is_a_wait_and_each_pass_a_source(guest: Guest, tmp_path: Path) -> None:
    for _epoch in range(2):
        for _ in fuelline.watch([1, 2, 3], name="mine"):
            assert guest.is_watched
    guest.spool.write_buffered()
    (left,) = read_spools(tmp_path)
    waits = left.of(Kind.WAIT)
    assert [wait[6] for wait in waits] == [0, 1, 2, 3] * 2
    assert len({wait[2] for wait in waits}) == 2


def test_a_source_with_hooks_of_its_own_below_speaks_for_itself(
    guest: Guest, tmp_path: Path
) -> None:
    def batches() -> Iterator[int]:
        guest.is_fed = True
        yield from range(4)

    assert list(fuelline.watch(batches())) == [0, 1, 2, 3]
    guest.spool.write_buffered()
    (left,) = read_spools(tmp_path)
    assert not left.of(Kind.WAIT)


def test_samples_are_those_of_the_first_array() -> None:
    class Array:
        shape = (16, 3)

    assert count_samples({"x": (Array(), 1)}) == 16
    assert count_samples("text") == -1
