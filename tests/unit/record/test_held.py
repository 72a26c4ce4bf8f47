"""What is held between two writings: the same with the compiled classes and the plain ones."""

import gc
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuelline.record import held as holding

RECORD = struct.Struct("<8q")
INTEGER = st.integers(-(2**63), 2**63 - 1)

needs_compiled = pytest.mark.skipif(not holding.is_compiled(), reason="built without a compiler")


@pytest.fixture(params=["plain", pytest.param("compiled", marks=needs_compiled)])
def kinds(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return holding.PLAIN if request.param == "plain" else (holding.Held, holding.Lap)


@pytest.fixture
def pair(kinds: tuple[Any, Any]) -> tuple[Any, Any]:
    """A holder whose trainer is this thread, and a hook's lap with ten quick calls."""
    held = kinds[0]()
    held.trainer, held.tid = threading.get_ident(), 7
    lap = kinds[1](held)
    lap.quick_calls = 10
    return held, lap


def records(held: Any) -> list[tuple[int, ...]]:
    return list(RECORD.iter_unpack(held.take()))


def test_a_quick_call_leaves_its_record_and_sets_the_phase(pair: tuple[Any, Any]) -> None:
    held, lap = pair
    shown = bytearray(1)
    held.show(memoryview(shown))
    start_ns = lap.start(3)
    assert (shown[0], held.phase, lap.is_inside, lap.quick_calls) == (3, 3, True, 9)
    assert lap.stop(4, start_ns, 1, 2, 3, -4, 5, 9 << 48)
    assert (shown[0], lap.is_inside) == (4, False)
    ((start, dur, *fields, tail),) = records(held)
    assert start == start_ns
    assert dur >= 0
    assert (fields, tail) == ([1, 2, 3, -4, 5], 9 << 48 | 7)
    assert records(held) == []


def run_apart(action: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(action()))
    thread.start()
    thread.join()
    return results[0]


def test_calls_that_may_not_be_quick(pair: tuple[Any, Any]) -> None:
    held, lap = pair
    assert run_apart(lambda: lap.start(None)) == 0
    assert run_apart(lambda: held.mark(1, 0)) is None
    lap.is_inside = True
    assert lap.start(None) == 0
    lap.is_inside, lap.quick_calls = False, 0
    assert lap.start(None) == 0
    held.reset()
    lap.quick_calls = 10
    assert lap.start(None) == 0
    assert records(held) == []


def test_calls_without_a_record_only_while_records_are_held(pair: tuple[Any, Any]) -> None:
    held, lap = pair
    assert not lap.skip()
    held.write_at = 1
    assert lap.skip()
    assert lap.quick_calls == 9
    assert not run_apart(lap.skip)


def test_it_is_time_to_write_from_a_moment_on(pair: tuple[Any, Any]) -> None:
    held, _ = pair
    held.write_at = 100
    assert [held.keep(0, end, 0, 0, 0, 0, 0, 0) for end in (99, 100, 101)] == [False, True, True]
    held.write_at = 2**62
    assert held.mark(1, 0) is False


@pytest.mark.parametrize("bad", [None, "x", 1.5, 2**63])
def test_what_is_no_integer_is_refused_and_leaves_nothing(pair: tuple[Any, Any], bad: Any) -> None:
    held, lap = pair
    start_ns = lap.start(None)

    def stop_and_take() -> None:
        lap.stop(None, start_ns, 1, bad, 3, 4, 5, 6)
        held.take()  # the plain one notices only now

    with pytest.raises((TypeError, OverflowError)):
        stop_and_take()
    assert not lap.is_inside
    assert records(held) == []


@needs_compiled
def test_a_number_that_runs_code_may_hold_records_itself() -> None:
    held = holding.Held()

    class Sly:
        def __index__(self) -> int:
            for _ in range(2000):  # so that room has to be made
                held.keep(1, 2, 0, 0, 0, 0, 0, 0)
            return 4

    held.keep(5, 6, Sly(), 0, 0, 0, 0, 0)  # type: ignore[arg-type]
    kept = records(held)
    assert len(kept) == 2001
    assert kept[-1][:3] == (5, 1, 4)


def test_phases_are_one_byte(pair: tuple[Any, Any]) -> None:
    held, lap = pair
    for bad in (-1, 256):
        with pytest.raises(ValueError, match=r"is no phase|invalid value"):
            held.phase = bad
        with pytest.raises(ValueError, match=r"is no phase|invalid value"):
            lap.start(bad)
    assert held.phase == 0


def test_the_page_of_the_phase_is_kept_until_another_is_shown(pair: tuple[Any, Any]) -> None:
    held, _ = pair
    held.show(memoryview(bytearray(1)))
    gc.collect()
    held.phase = 5
    assert held.phase == 5
    held.reset()
    assert (held.phase, held.trainer, held.tid) == (0, 0, 0)


@needs_compiled
@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(*[INTEGER] * 5, st.integers(0, 2**62)), max_size=1500))
def test_both_hold_the_same(given_records: list[tuple[int, ...]]) -> None:
    both = holding.PLAIN[0](), holding.Held()
    for held in both:
        held.tid = 12345
        for number, fields in enumerate(given_records):
            held.keep(number, number + 3, *fields)
    assert both[0].take() == both[1].take()


def test_a_forked_child_leaves_what_began_before_it_to_its_parent(pair: tuple[Any, Any]) -> None:
    held, lap = pair
    start_ns = lap.start(None)
    held.reset()  # as in a child
    assert not lap.stop(None, start_ns, 1, 2, 3, 4, 5, 0)
    assert not held.keep(start_ns, start_ns + 1, 1, 2, 3, 4, 5, 0)
    assert records(held) == []
    held.keep(held.born_ns, held.born_ns + 1, 1, 2, 3, 4, 5, 0)
    assert len(records(held)) == 1
