"""What is held between two writings, compiled and not, and the compiled quick calls."""

import gc
import re
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuelline.record import buffer as holding
from fuelline.schema.wire import Kind
from fuelline.timeline.events import _FIELDS

RECORD = struct.Struct("<8q")
TID = threading.get_native_id()
INTEGER = st.integers(-(2**63), 2**63 - 1)

needs_compiled = pytest.mark.skipif(not holding.is_compiled(), reason="built without a compiler")


@pytest.fixture(params=["plain", pytest.param("compiled", marks=needs_compiled)])
def buffer(request: pytest.FixtureRequest) -> Any:
    """A holder whose trainer is this thread."""
    buffer = holding.PLAIN[0]() if request.param == "plain" else holding.RecordBuffer()
    buffer.trainer, buffer.tid = threading.get_ident(), TID
    return buffer


def records(buffer: Any) -> list[tuple[int, ...]]:
    return list(RECORD.iter_unpack(buffer.take()))


def run_apart(action: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(action()))
    thread.start()
    thread.join()
    return results[0]


class Thing:
    """Something that has a number."""


def test_a_mark_has_the_number_of_its_thing_and_is_of_the_trainer(buffer: Any) -> None:
    known, unknown = Thing(), Thing()
    entries = {id(known): (weakref.ref(known), 5), id(unknown): (weakref.ref(known), 6)}
    buffer.write_at = 2**62
    assert buffer.mark(entries, known, 9 << 48) is False
    assert buffer.mark(entries, unknown, 9 << 48) is None  # the id of one that died before
    assert buffer.mark({}, known, 9 << 48) is None
    assert run_apart(lambda: buffer.mark(entries, known, 9 << 48)) is None
    ((start, dur, *fields, tail),) = records(buffer)
    assert start > 0
    number, kind, cpu_clock_ns, *rest = fields
    assert (dur, number, kind, rest, tail) == (0, 5, 0, [0, 0], 9 << 48 | TID)
    assert cpu_clock_ns > 0


def test_the_cpu_clock_is_not_read_at_every_mark_of_quick_steps(buffer: Any) -> None:
    known = Thing()
    buffer.write_at = 2**62
    for _ in range(3):
        buffer.mark({id(known): (weakref.ref(known), 5)}, known, 9 << 48)
    marks = records(buffer)
    for (before, *_), (after, _, _, _, clock_ns, *_) in pairwise(marks):
        assert clock_ns == -1 or after - before >= holding.CPU_CLOCK_EVERY_NS


def test_it_is_time_to_write_from_a_moment_on(buffer: Any) -> None:
    buffer.write_at = 100
    assert [buffer.keep(0, end, 0, 0, 0, 0, 0, 0) for end in (99, 100, 101)] == [False, True, True]


@pytest.mark.parametrize("bad", [None, "x", 1.5, 2**63])
def test_what_is_no_integer_is_refused_and_leaves_nothing(buffer: Any, bad: Any) -> None:
    def keep_and_take() -> None:
        buffer.keep(1, 2, 1, bad, 3, 4, 5, 6)
        buffer.take()  # the plain one notices only now

    with pytest.raises((TypeError, OverflowError)):
        keep_and_take()
    assert records(buffer) == []


@needs_compiled
def test_a_number_that_runs_code_may_hold_records_itself() -> None:
    buffer = holding.RecordBuffer()

    class Sly:
        def __index__(self) -> int:
            for _ in range(2000):  # so that room has to be made
                buffer.keep(1, 2, 0, 0, 0, 0, 0, 0)
            return 4

    buffer.keep(5, 6, Sly(), 0, 0, 0, 0, 0)  # type: ignore[arg-type]
    kept = records(buffer)
    assert len(kept) == 2001
    assert kept[-1][:3] == (5, 1, 4)


def test_phases_are_one_byte(buffer: Any) -> None:
    for bad in (-1, 256):
        with pytest.raises(ValueError, match=r"is no phase|invalid value"):
            buffer.phase = bad
    assert buffer.phase == 0


def test_the_page_of_the_phase_is_kept_until_another_is_shown(buffer: Any) -> None:
    buffer.show(memoryview(bytearray(1)))
    gc.collect()
    buffer.phase = 5
    assert buffer.phase == 5
    buffer.reset()
    assert (buffer.phase, buffer.trainer, buffer.tid) == (0, 0, 0)


@needs_compiled
@settings(max_examples=4 * settings().max_examples)
@given(st.lists(st.tuples(*[INTEGER] * 5, st.integers(0, 2**62)), max_size=1500))
def test_both_hold_the_same(given_records: list[tuple[int, ...]]) -> None:
    both = holding.PLAIN[0](), holding.RecordBuffer()
    for buffer in both:
        buffer.tid = 12345
        for number, fields in enumerate(given_records):
            buffer.keep(number, number + 3, *fields)
    assert both[0].take() == both[1].take()


def test_a_forked_child_leaves_what_began_before_it_to_its_parent(buffer: Any) -> None:
    start_ns = time.monotonic_ns()
    buffer.reset()  # as in a child
    assert not buffer.keep(start_ns, start_ns + 1, 1, 2, 3, 4, 5, 0)
    assert records(buffer) == []
    buffer.keep(buffer.born_ns, buffer.born_ns + 1, 1, 2, 3, 4, 5, 0)
    assert len(records(buffer)) == 1


class Hooked:
    """A hook with ten quick calls, and what became of all calls."""

    def __init__(self, original: Callable[..., Any], settings: Any = None) -> None:
        self.buffer = holding.RecordBuffer()
        self.buffer.trainer, self.buffer.tid = threading.get_ident(), TID
        self.buffer.write_at = 2**62
        self.state = holding.QuickCalls(self.buffer)
        self.state.quick_calls = 10
        self.closed: list[Any] = []
        self.faults: list[BaseException] = []
        self.later: BaseException
        self.written = 0
        assert holding.Quick is not None
        write, tail = self.write, 9 << 48
        self.quick = holding.Quick(self, self.state, original, self.go_on, write, tail, settings)

    def go_on(self, *_: Any, **__: Any) -> str:
        return "thorough"

    def write(self) -> None:
        self.written += 1

    def close(self, ticket: Any, result: Any, error: BaseException) -> None:
        assert result is None
        self.closed.append((ticket, error))

    def answer_for(self, fault: BaseException) -> None:
        self.faults.append(fault)
        if isinstance(fault, KeyboardInterrupt):
            raise fault


@needs_compiled
def test_a_quick_call_passes_all_on_and_leaves_its_record() -> None:
    seen: list[Any] = []

    def original(*args: Any, **kwargs: Any) -> str:
        seen.append((args, kwargs, hook.state.is_inside, hook.quick.run("inner")))
        return "result"

    hook = Hooked(original)
    assert hook.quick.run(1, 2, three=3) == "result"
    assert seen == [((1, 2), {"three": 3}, True, "thorough")]
    assert (hook.state.is_inside, hook.state.quick_calls, hook.written) == (False, 9, 0)
    ((start, dur, *fields, tail),) = records(hook.buffer)
    assert start > 0
    assert dur > 0
    assert (fields, tail) == ([0, -1, -1, 0, 0], 9 << 48 | TID)


@needs_compiled
def test_calls_that_may_not_be_quick_are_thorough() -> None:
    hook = Hooked(lambda *_: "quick")
    assert run_apart(hook.quick.run) == "thorough"
    hook.state.is_inside = True
    assert hook.quick.run() == hook.quick.fetch(1, [2]) == hook.quick.take(hook) == "thorough"
    hook.state.is_inside, hook.state.quick_calls = False, 0
    assert hook.quick.run() == hook.quick.fetch(1, [2]) == "thorough"
    hook.state.quick_calls, hook.buffer.write_at = 10, 0
    assert hook.quick.fetch(1, [2]) == "thorough"  # which has a record
    hook.buffer.reset()
    assert hook.quick.run() == "thorough"
    assert records(hook.buffer) == []


@needs_compiled
@pytest.mark.parametrize("error", [StopIteration(4), KeyboardInterrupt(), ValueError("x")])
def test_what_a_call_raises_is_told_to_the_hook_and_raised(error: BaseException) -> None:
    def original(*_: Any) -> None:
        raise error

    hook = Hooked(original)
    with pytest.raises(type(error)) as caught:
        hook.quick.run()
    assert caught.value is error
    (((nodes, cpu_ns, start_ns), told),) = hook.closed
    assert (nodes, cpu_ns, told) == (0, 0, error)
    assert start_ns > 0
    with pytest.raises(type(error)):
        hook.quick.fetch(1, [2])
    assert not hook.state.is_inside
    assert hook.buffer.fetched == 0
    assert (records(hook.buffer), hook.faults) == ([], [])


@needs_compiled
def test_an_interrupt_while_an_error_is_told_takes_its_place_and_keeps_it_as_context() -> None:
    class Interrupted(Hooked):
        def close(self, ticket: Any, result: Any, error: BaseException) -> None:
            raise KeyboardInterrupt

    hook = Interrupted(lambda: {}["missing"])
    with pytest.raises(KeyboardInterrupt) as caught:
        hook.quick.run()
    assert isinstance(caught.value.__context__, KeyError)


@needs_compiled
def test_a_fault_in_writing_is_answered_for_and_the_result_given() -> None:
    class Failing(Hooked):
        fault: type[BaseException] = OSError

        def write(self) -> None:
            raise self.fault

    hook = Failing(lambda: "result")
    hook.buffer.write_at = 1
    assert hook.quick.run() == "result"
    assert [type(fault) for fault in hook.faults] == [OSError]
    hook.fault = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        hook.quick.run()
    assert not hook.state.is_inside


@needs_compiled
def test_a_thread_that_is_no_longer_the_trainer_changes_nothing_when_it_returns() -> None:
    def original() -> None:
        hook.buffer.trainer, hook.buffer.tid, hook.buffer.phase = 1, 1, 3
        hook.state.is_inside = True  # the new trainer's

    hook = Hooked(original)
    hook.quick.run()
    assert hook.state.is_inside
    assert hook.buffer.phase == 3
    ((*_, tail),) = records(hook.buffer)
    assert tail == 9 << 48 | TID


@needs_compiled
def test_a_call_in_which_the_process_forked_leaves_no_record() -> None:
    def original() -> None:
        hook.buffer.reset()  # as in a child

    hook = Hooked(original)
    hook.quick.run()
    assert records(hook.buffer) == []


@needs_compiled
def test_a_quick_fetch_leaves_how_many_indices_it_was_given() -> None:
    hook = Hooked(lambda _fetcher, indices: indices)
    assert hook.quick.fetch(None, [1, 2, 3]) == [1, 2, 3]
    assert hook.buffer.fetched == 3
    hook.quick.fetch(None, iter([1]))
    assert hook.buffer.fetched == 0
    assert records(hook.buffer) == []


class Batches:
    """As a loader's iterator."""

    def __init__(self, note: Any, **own: Any) -> None:
        vars(self).update(own, note=note, _num_yielded=6)


def watching(*, is_training: bool, look: Callable[..., Any] = lambda *_: (3, 12)) -> Any:
    return holding.TakeSettings(
        note="note",
        yielded="_num_yielded",
        outstanding="_tasks_outstanding",
        is_training=lambda: is_training,
        look=look,
        training=holding.WaitPhases(1, 2, 3 << 48),
        evaluating=holding.WaitPhases(4, 5, 6 << 48),
    )


ROOT = Path(__file__).parents[3]
COMPILED = (ROOT / "src/fuelline/record/_buffer.c").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("enum", "names"),
    [
        ("wait_field", list(_FIELDS[Kind.WAIT])),
        ("backward_field", list(_FIELDS[Kind.BACKWARD])),
        ("step_field", list(_FIELDS[Kind.STEP])),
        ("gc_field", [*_FIELDS[Kind.GC], "fields"]),
        ("iterator_note", [*holding.IteratorNote._fields, "fields"]),
    ],
)
def test_the_compiled_part_has_the_same_names_in_the_same_order(
    enum: str, names: list[str]
) -> None:
    (found,) = re.findall(rf"enum {enum} {{ (.*?) }};", COMPILED, re.DOTALL)
    prefix = enum.partition("_")[0] + "_" if enum != "iterator_note" else "note_"
    assert [name.lower().removeprefix(prefix) for name in found.split(", ")] == names


@pytest.mark.parametrize(
    "ticket", [holding.TakeTicket, holding.BackwardTicket, holding.TakeSettings]
)
def test_the_compiled_part_lists_the_names_of_each_tuple(ticket: Any) -> None:
    (listed,) = re.findall(rf"/\* {ticket.__name__}: (.*?)(?:;|\*/)", COMPILED, re.DOTALL)
    plain = re.sub(r"\(.*?\)", "", listed, flags=re.DOTALL)
    assert tuple(name.strip() for name in plain.split(",")) == ticket._fields


@needs_compiled
@pytest.mark.parametrize(
    ("iterator", "told"),
    [
        (Batches((11, 16, 4), _tasks_outstanding=4), (16, -1)),
        (Batches((11, 16, 4), _tasks_outstanding=3), (3, 12)),
        (Batches((11, None, 2**63 - 1), _tasks_outstanding=3), (3, 12)),
        (Batches((11, 16, 16)), (3, 12)),
    ],
    ids=["foretold", "towards the end", "never", "of no quick fetch"],
)
def test_a_batch_is_looked_at_unless_its_size_is_certain(iterator: Any, told: Any) -> None:
    hook = Hooked(lambda _: "batch", watching(is_training=True))
    assert hook.quick.take(iterator) == "batch"
    ((*_, loader, samples, size_bytes, cpu, position, tail),) = records(hook.buffer)
    assert (samples, size_bytes) == told
    assert (loader, cpu, position, tail) == (11, -1, 6, 3 << 48 | TID)


@needs_compiled
@pytest.mark.parametrize(("is_training", "phases"), [(True, [1, 2]), (False, [4, 5])])
def test_the_phase_is_told_in_and_after_the_wait(is_training: bool, phases: list[int]) -> None:
    hook = Hooked(lambda _: hook.buffer.phase, watching(is_training=is_training))
    assert [hook.quick.take(Batches((1, 1, 0))), hook.buffer.phase] == phases


@needs_compiled
def test_an_iterator_that_is_not_known_yet_is_looked_at_thoroughly() -> None:
    hook = Hooked(lambda _: "batch", watching(is_training=True))
    for iterator in (Batches(None), Batches((1, 2)), object(), iter([])):
        assert hook.quick.take(iterator) == "thorough"
    assert hook.state.quick_calls == 10


@needs_compiled
def test_a_batch_that_cannot_be_looked_at_is_given_all_the_same() -> None:
    def look(*_: Any) -> Any:
        raise looked[0]

    looked: list[BaseException] = [ValueError()]
    hook = Hooked(lambda _: "batch", watching(is_training=True, look=look))
    iterator = Batches((1, 2, 3), _tasks_outstanding=0)
    assert hook.quick.take(iterator) == "batch"
    assert hook.faults == looked
    looked = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        hook.quick.take(iterator)
    assert (hook.state.is_inside, records(hook.buffer)) == (False, [])


@needs_compiled
@pytest.mark.parametrize("name", ["_num_yielded", "_tasks_outstanding"])
@pytest.mark.parametrize("odd", [2**63, -(2**70), None, "x", True])
def test_a_loader_that_counts_strangely_gives_its_batches(name: str, odd: Any) -> None:
    hook = Hooked(lambda _: "batch", watching(is_training=True))
    iterator = Batches((11, 16, 4))
    vars(iterator)[name] = odd
    assert hook.quick.take(iterator) == "batch"
    assert len(records(hook.buffer)) == 1
    assert hook.faults == []


@needs_compiled
def test_whoever_cannot_tell_whether_gradients_are_on_has_the_thorough_way() -> None:
    def is_training() -> bool:
        raise ValueError

    hook = Hooked(lambda _: "batch", ("note", "a", "b", is_training, print, (1, 2, 3), (4, 5, 6)))
    assert hook.quick.take(Batches((11, 16, 4))) == "thorough"
    assert [type(fault) for fault in hook.faults] == [ValueError]


@needs_compiled
def test_an_answer_that_is_no_truth_value_is_let_go_of() -> None:
    def original(_: Any) -> None:
        raise StopIteration

    hook = Hooked(original, ("note", "a", "b", Thing, print, (1, 2, 3), (4, 5, 6)))
    with pytest.raises(StopIteration):
        hook.quick.take(Batches((11, 16, 4)))
    ((ticket, _),) = hook.closed
    assert ticket[3] is False


@needs_compiled
def test_a_context_that_a_handler_s_error_has_is_kept_and_none_goes_in_circles() -> None:
    class Interrupted(Hooked):
        def close(self, ticket: Any, result: Any, error: BaseException) -> None:
            raise self.later

    def original() -> None:
        raise error

    hook = Interrupted(original)
    error, cause = KeyError(), ValueError()
    hook.later = KeyboardInterrupt()
    hook.later.__context__ = cause
    with pytest.raises(KeyboardInterrupt) as caught:
        hook.quick.run()
    assert caught.value.__context__ is cause
    hook.later.__context__ = None
    error.__context__ = hook.later
    with pytest.raises(KeyboardInterrupt) as caught:
        hook.quick.run()
    assert caught.value.__context__ is None


@needs_compiled
def test_a_thread_with_the_identifier_of_one_that_ended_is_not_the_trainer() -> None:
    hook = Hooked(lambda: "quick")
    hook.buffer.tid = 1
    assert hook.quick.run() == "thorough"


@needs_compiled
def test_the_end_of_a_loader_is_told_with_all_there_is_to_know() -> None:
    def original(_: Any) -> None:
        raise StopIteration

    hook = Hooked(original, watching(is_training=False))
    iterator = Batches((1, 2, 3))
    with pytest.raises(StopIteration):
        hook.quick.take(iterator)
    ((told, error),) = hook.closed
    ticket = holding.TakeTicket(*told)
    assert (ticket.ident, ticket.iterator) == (threading.get_ident(), iterator)
    assert ticket.note == holding.IteratorNote(source_id=1, batch_size=2, enough=3)
    assert (ticket.is_training, ticket.position, ticket.cpu_ns) == (False, 6, 0)
    assert ticket.start_ns > 0
    assert isinstance(error, StopIteration)


@needs_compiled
def test_a_backward_pass_that_fails_is_told_with_its_start() -> None:
    hook = Hooked(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        hook.quick.run()
    ((told, _),) = hook.closed
    ticket = holding.BackwardTicket(*told)
    assert (ticket.nodes, ticket.cpu_ns) == (0, 0)
    assert ticket.start_ns > 0


@needs_compiled
def test_nothing_is_kept_alive_or_let_go_too_often() -> None:
    thing, looks = Thing(), 50

    def original(*_: Any) -> Thing:
        if next(failing):
            raise KeyError
        return thing

    failing: Iterator[bool] = iter([False, True] * looks * 3)
    hook = Hooked(original, watching(is_training=True))
    hook.state.quick_calls = looks * 6
    iterator, note = Batches((11, 500, 4), _tasks_outstanding=9), (11, 500, 4)
    vars(iterator)["note"] = note
    before = [sys.getrefcount(each) for each in (thing, iterator, note, original, vars(iterator))]
    for _ in range(looks):
        for call in (
            lambda: hook.quick.run(iterator),
            lambda: hook.quick.fetch(iterator, [1]),
            lambda: hook.quick.take(iterator),
        ):
            call()
            with pytest.raises(KeyError):
                call()
        hook.closed.clear()
    after = [sys.getrefcount(each) for each in (thing, iterator, note, original, vars(iterator))]
    assert after == before


class Clock:
    """What a queue of marks asks; it keeps the faults."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.besides: list[int] = []
        self.writings = 0

    def answer_for(self, fault: BaseException) -> None:
        self.faults.append(str(fault))

    def read_beside(self, now_ns: int) -> bool:
        self.besides.append(now_ns)
        return True

    def write(self) -> None:
        self.writings += 1


class Event:
    """One that the device passes when the test says so; some fail."""

    passed = 0

    def __init__(self, number: int) -> None:
        self.number = number
        self.streams: list[str] = []

    def record(self, stream: str) -> None:
        if stream == "broken":
            raise RuntimeError("no such stream")
        self.streams.append(stream)

    def query(self) -> bool:
        return self.number < Event.passed

    def elapsed_time(self, other: "Event") -> float:
        return 1.5 if other.number != self.number else -1.0


class Marks:
    """A queue, what it asks, and what was made of it."""

    def __init__(self, *, is_compiled: bool, most: int = 8) -> None:
        buffer: Any = holding.RecordBuffer() if is_compiled else holding.PLAIN[0]()
        buffer.trainer, buffer.tid, buffer.write_at = threading.get_ident(), TID, 2**62
        self.buffer, self.clock, self.made, self.is_capturing = buffer, Clock(), 0, False
        kind: Any = holding.MarkQueue if is_compiled else holding.PLAIN[4]
        settings = holding.MarkSettings(10**12, most, 1 << 2, 1 << 1, 7 << 48)
        self.queue = kind(buffer, self.clock, settings)
        self.queue.make_event, self.queue.is_capturing = self.make, lambda: self.is_capturing
        self.queue.device, self.queue.number, self.queue.stream_id = 3, 2, 9
        self.queue.stream = "main"

    def make(self) -> Event:
        self.made += 1
        return Event(self.made)

    def told(self) -> list[tuple[int, ...]]:
        """The fields of the records, without the times of the host."""
        return [record[2:] for record in records(self.buffer)]

    def do(self, action: str) -> object:
        """One move of a random story."""
        if action == "capture":
            self.is_capturing = not self.is_capturing
        elif action == "pass":
            Event.passed += 2
        elif action == "apart":
            run_apart(lambda: self.queue.read_and_mark(1))
        elif action == "beside":
            self.queue.has_beside = not self.queue.has_beside
        elif action in {"side", "broken"}:
            self.queue.put(4, action, 11)
        elif action == "clear":
            self.queue.clear()
            self.queue.stream = "main"
        elif action == "read":
            self.queue.read()
        else:
            name, place = action.split()
            getattr(self.queue, name)(int(place))
        return (self.made, len(self.clock.besides), self.clock.writings, self.clock.faults)


ACTIONS = (
    *("mark 1", "mark 2", "mark 3", "read_and_mark 1", "read_and_mark 5", "read", "pass", "pass"),
    *("side", "broken", "capture", "apart", "beside", "clear"),
)


@needs_compiled
@settings(deadline=None)
@given(st.lists(st.sampled_from(ACTIONS), max_size=60))
def test_a_queue_of_marks_does_the_same_compiled_and_not(actions: list[str]) -> None:
    stories = []
    for is_compiled in (False, True):
        Event.passed = 0
        marks = Marks(is_compiled=is_compiled, most=4)
        seen = [marks.do(action) for action in actions]
        stories.append((seen, marks.told(), marks.queue.latest_ns, marks.queue.has_beside))
    assert stories[0] == stories[1]


@pytest.mark.parametrize("is_compiled", [False, pytest.param(True, marks=needs_compiled)])
def test_a_queue_of_marks_that_is_cleared_gives_away_all_that_it_held(is_compiled: bool) -> None:
    Event.passed = 2
    marks = Marks(is_compiled=is_compiled)
    held: weakref.WeakSet[Event] = weakref.WeakSet()
    marks.queue.make_event = lambda: held.add(event := marks.make()) or event
    for _ in range(4):
        marks.queue.read_and_mark(5)
    everything = marks.queue.clear()
    gc.collect()
    assert len(held) == marks.made > 2
    assert marks.queue.stream is None
    del everything
    gc.collect()
    assert not held


@needs_compiled
def test_what_is_raised_to_interrupt_the_job_passes_through_a_queue_of_marks() -> None:
    marks = Marks(is_compiled=True)

    def interrupt() -> bool:
        raise KeyboardInterrupt

    marks.queue.is_capturing = interrupt
    with pytest.raises(KeyboardInterrupt):
        marks.queue.mark(5)
    assert not marks.clock.faults
