"""What a batch asks of each resource, from stories."""

from __future__ import annotations

import pytest

from fuelline.schema.readings import Missing, Reading
from fuelline.schema.run.recording import Excerpts
from fuelline.schema.wire import Kind, Phase
from tests.unit.builders import MS, START_NS, TRAINER, Lane, facts_of, make_timeline
from tests.unit.signals.devices.test_devices import each_second
from tests.unit.signals.devices.test_devices import seen as seen_device
from tests.unit.signals.recorded.test_device_time import play

WORKERS = (200, 201)


def story(batches: int = 60, **fetch) -> list[Lane]:
    """Two workers whose fetches take 100 ms; a step of 50 ms."""
    trainer = Lane()
    for number, pid in enumerate(WORKERS):
        trainer.worker(pid, number=number)
    lanes = [Lane(pid) for pid in WORKERS]
    for number in range(batches):
        trainer.batch(30, cpu_ns=2 * MS).gap(10).backward(5).optimizer(4).gap(1)
        lanes[number % 2].fetch(**({"ms": 98, "clocks_ms": (20, 8, 0)} | fetch))
        lanes[number % 2].add(Kind.HANDOFF, 2, 1000)
    trainer.batch(30)
    return [trainer, *lanes]


def seen(state: str, count: int) -> tuple:
    return (START_NS, WORKERS[0], WORKERS[0], int(Phase.WAIT), state, "", 0, count)


def test_a_fetch_is_cpu_waiting_for_a_core_and_blocked() -> None:
    states = [seen("running", 30), seen("read", 60), seen("metadata", 20)]
    found = facts_of(make_timeline(*story(), states=states)).demands
    named = {
        "batch_seconds": 0.050,
        "fetch_cpu_seconds": 0.020,
        "fetch_queued_seconds": 0.008,
        "fetch_blocked_seconds": 0.070,
        "read_frac": 0.75,
        "metadata_frac": 0.25,
        "handoff_seconds": 0.002,
        "take_seconds": 0.002,
        "busy_frac": 1.0,
        "host_seconds": 0.020,
        "loop_seconds": 0.001,
    }
    for name, expected in named.items():
        told = getattr(found, name)
        assert isinstance(told, Reading), name
        assert told.value == pytest.approx(expected, rel=0.05), name
    assert found.batches >= 58
    assert found.pause_seconds == {}


def test_blocked_time_that_nobody_sampled_has_no_cause() -> None:
    found = facts_of(make_timeline(*story())).demands
    assert isinstance(found.fetch_blocked_seconds, Reading)
    assert isinstance(found.read_frac, Missing)


def test_fetches_that_hardly_block_need_no_cause() -> None:
    found = facts_of(make_timeline(*story(clocks_ms=(97, 0.5, 0)))).demands
    assert isinstance(found.read_frac, Reading)
    assert found.read_frac.value == 0


def test_pauses_are_spread_over_all_batches_with_what_follows_them() -> None:
    trainer = Lane()
    for number in range(50):
        trainer.batch(5).gap(10).backward(5).optimizer(5)
        if number % 10 == 9:
            trainer.add(Kind.PAUSE, 100, 1000).gap(50)
        else:
            trainer.gap(1)
    trainer.batch(5)
    found = facts_of(make_timeline(trainer)).demands
    assert found.pause_seconds["checkpoint"] == pytest.approx(0.015, rel=0.1)
    assert found.pause_counts == {"checkpoint": 5}
    assert isinstance(found.loop_seconds, Reading)
    assert found.loop_seconds.value < 0.002


def test_excerpts_count_every_start_of_an_epoch_though_they_keep_little_of_its_time() -> None:
    trainer = Lane()
    for _ in range(3):
        trainer.iterator(100)
        for _ in range(20):
            trainer.batch(5).gap(10).backward(5).optimizer(5)
    trainer.put(Kind.SOURCE_START, trainer.now_ns, 0, 1)  # its time was not kept
    whole = facts_of(make_timeline(trainer)).demands
    excerpts = Excerpts(first_ns=0, period_ns=10, kept_ns=10, records=1000)
    found = facts_of(make_timeline(trainer, facts={"excerpts": excerpts})).demands
    assert whole.pause_counts["epoch start"] == 2  # the window begins after the first
    assert found.pause_counts["epoch start"] == 4
    assert found.pause_seconds == whole.pause_seconds


def test_without_workers_nothing_is_handed_over() -> None:
    trainer = Lane()
    for _ in range(30):
        start_ns = trainer.now_ns
        trainer.batch(30).gap(10).backward(5).optimizer(5)
        trainer.put(Kind.FETCH, start_ns + MS, 28 * MS, -1, 32, 25 * MS, 0, 0)
    found = facts_of(make_timeline(trainer)).demands
    assert isinstance(found.handoff_seconds, Missing)
    assert isinstance(found.fetch_cpu_seconds, Reading)
    assert found.fetch_cpu_seconds.value == pytest.approx(0.025, rel=0.01)


def test_clocks_of_all_threads_say_what_wants_to_run() -> None:
    lanes = story()
    end = START_NS + 3000 * MS
    clocks = [
        (at, pid, pid, int(share * (at - START_NS)), int(wait * (at - START_NS)))
        for pid, share, wait in ((TRAINER, 0.2, 0.1), (200, 0.4, 0.2))
        for at in (START_NS + 200 * MS, end - 200 * MS)
    ]
    processes = [
        (at, pid, int(share * (at - START_NS)), 0, 0, 0, 0, 0, 0, 10**8)
        for pid, share in ((TRAINER, 0.2), (200, 0.4))
        for at in (START_NS, START_NS + 1500 * MS, end - 100 * MS)
    ]
    found = facts_of(make_timeline(*lanes, clocks=clocks, processes=processes)).demands
    assert isinstance(found.runnable, Reading)
    assert found.runnable.value == pytest.approx(0.9, rel=0.1)
    assert isinstance(found.host_cpu_frac, Reading)
    assert found.host_cpu_frac.value == pytest.approx(2 / 3, rel=0.01)
    assert isinstance(found.worker_bytes, Reading)
    assert found.worker_bytes.value == 10**8


def test_a_job_whose_batches_another_thread_takes_has_no_demands() -> None:
    trainer, reader = Lane(), Lane(tid=TRAINER + 1)
    for _ in range(30):
        reader.batch(50)
        trainer.gap(30).backward(10).optimizer(10)
    found = facts_of(make_timeline(trainer, reader)).demands
    assert isinstance(found.batch_seconds, Missing)


def test_a_host_is_busy_no_longer_than_its_own_clock_says() -> None:
    """Launches wait for a full queue: of 30 ms between batches 2 ms are the host's own."""
    lane = play(30.0, wait=lambda _: 1.0, sync_every=25)
    clocks = [
        (START_NS + 100 * at * MS, TRAINER, TRAINER, 7 * at * MS, 0)  # 7 % on a core
        for at in range(40)
    ]
    found = facts_of(make_timeline(lane, clocks=clocks)).demands
    assert found.device_mode == "beside"
    assert isinstance(found.host_seconds, Reading)
    assert found.host_seconds.value == pytest.approx(0.0022, rel=0.05)


def test_counters_alone_do_not_say_that_the_device_was_idle() -> None:
    lane = play(1.0, sync_every=0)
    facts = facts_of(
        make_timeline(
            lane,
            facts={"devices": (seen_device(),)},
            devices=each_second(until_s=5, util__gpu_frac=0.9),
        )
    )
    assert isinstance(facts.demands.device_seconds, Reading)
    assert facts.demands.device_seconds.origin == "utilisation of the device"
    assert facts.hidden_frac.get("input", 0) == 0


def test_batches_without_anything_between_them_tell_nothing_about_the_host() -> None:
    lane = Lane()
    for _ in range(20):
        lane.batch(5)
    found = facts_of(make_timeline(lane)).demands
    assert found.host_seconds == found.loop_seconds == Missing(reason="too few batches")
