"""Waits of the training thread in Python's own library: which count, and that none is disturbed."""

import asyncio
import multiprocessing.pool
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fuelline.record.hooks.guest import Framework, Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.waits import SOURCE_ID, watch_waits
from fuelline.record.spool import Spool
from fuelline.schema.wire import Flag, Kind, Phase
from tests.integration.harness import Left, read_spools

WAIT_S = 0.02
PLAIN = Framework("nothing", "/nowhere/", (), lambda: False)


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    spool, patches, hooks = Spool(f"{tmp_path}/spool"), Patches(), list[Hook]()
    guest = Guest(spool, PLAIN)

    def watch(name: str, action: Callable[[], None]) -> None:
        if name in sys.modules:
            action()

    watch_waits(guest, patches, watch, hooks.append)
    guest.appoint()
    yield guest
    for hook in hooks:
        hook.switch_off()
    patches.undo()
    spool.close()


def read(tmp_path: Path) -> Left:
    (left,) = read_spools(tmp_path)
    return left


def later(action: Callable[[], object]) -> None:
    threading.Timer(WAIT_S, action).start()


def take_from_queue() -> None:
    ready: queue.Queue[int] = queue.Queue()
    later(lambda: ready.put(1))
    assert ready.get() == 1


def take_from_future() -> None:
    with ThreadPoolExecutor(1) as executor:
        assert executor.submit(lambda: time.sleep(WAIT_S) or 7).result() == 7


def take_from_pool() -> None:
    with multiprocessing.pool.ThreadPool(1) as pool:
        assert next(pool.imap(lambda each: time.sleep(WAIT_S) or each, [3])) == 3


def take_from_coroutine() -> None:
    asyncio.run(asyncio.sleep(WAIT_S))


def take_by_event() -> None:
    ready = threading.Event()
    later(ready.set)
    assert ready.wait()


TAKES = [take_from_queue, take_from_future, take_from_pool, take_from_coroutine, take_by_event]


@pytest.mark.parametrize("take", TAKES)
def test_the_outermost_wait_of_the_trainer_is_one_record_as_long_as_it_was(
    guest: Guest, tmp_path: Path, take: Callable[[], None]
) -> None:
    take()
    waits = [each for each in read(tmp_path).of(Kind.WAIT) if each[1] >= WAIT_S * 0.9e9]
    assert len(waits) == 1
    assert waits[0][2] == SOURCE_ID
    assert guest.spool.buffer.phase == Phase.COMPUTE


def test_waits_of_other_threads_are_theirs(guest: Guest, tmp_path: Path) -> None:
    guest.append(Kind.STEP, 1, 0)
    thread = threading.Thread(target=take_from_queue)
    guest.is_at_wait_point = True  # as `join` below would be a wait of the trainer's
    thread.start()
    thread.join()
    assert not read(tmp_path).of(Kind.WAIT)


def test_nothing_is_recorded_beside_a_loader_that_has_hooks(guest: Guest, tmp_path: Path) -> None:
    guest.append(Kind.STEP, 1, 0)
    guest.is_fed = True
    take_from_queue()
    assert not read(tmp_path).of(Kind.WAIT)


def test_a_call_that_holds_the_whole_training_is_no_wait(guest: Guest, tmp_path: Path) -> None:
    async def train() -> None:
        guest.steps += 1
        guest.append(Kind.STEP, 1, 0)

    asyncio.run(train())
    assert not [each for each in read(tmp_path).of(Kind.WAIT) if each[1] > WAIT_S * 1e9]


def test_an_empty_queue_raises_to_the_job_and_is_no_batch(guest: Guest, tmp_path: Path) -> None:
    assert guest.is_at_wait_point is False
    with pytest.raises(queue.Empty):
        queue.Queue[int]().get(timeout=WAIT_S)
    (wait,) = read(tmp_path).of(Kind.WAIT)
    assert wait[1] >= WAIT_S * 0.9e9
    assert guest.is_at_wait_point is False


def test_samples_taken_one_by_one_leave_few_records(guest: Guest, tmp_path: Path) -> None:
    ready: queue.Queue[int] = queue.Queue()
    for number in range(2000):
        ready.put(number)
    for _ in range(2000):
        ready.get()
    assert 1 <= len(read(tmp_path).of(Kind.WAIT)) < 1000
    assert guest.is_learning()


def test_what_was_hooked_is_as_before(tmp_path: Path) -> None:
    before = queue.Queue.get, threading.Condition.wait, multiprocessing.pool.IMapIterator.__next__
    patches, hooks = Patches(), list[Hook]()
    guest = Guest(Spool(f"{tmp_path}/spool"), PLAIN)
    watch_waits(guest, patches, lambda name, action: action(), hooks.append)
    assert queue.Queue.get is not before[0]
    patches.undo()
    after = queue.Queue.get, threading.Condition.wait, multiprocessing.pool.IMapIterator.__next__
    assert after == before
    assert Flag.END
