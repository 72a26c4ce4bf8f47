"""What the fetching threads did while the trainer waited."""

import pytest

from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.schema.run.samples import Limits
from fuelline.schema.wire import Kind, Phase
from fuelline.signals.recorded.fetching.fetches import fetch_table
from tests.unit.builders import MS, START_NS, TRAINER, Lane, facts_of, judge, make_timeline

WORKER = 200
WAIT = int(Phase.WAIT)


def seen(
    state: str, count: int, *, pid: int = WORKER, on: tuple[int, str] = (0, ""), phase: int = WAIT
) -> tuple:
    """One row of thread states of a main thread; `on` is a place and a system call."""
    place, syscall = on
    return (START_NS, pid, pid, phase, state, syscall, place, count)


def starved_job(workers: tuple[int, ...] = (WORKER,), fetches: int = 20, **fetch) -> list[Lane]:
    """A trainer that waits, and workers that fetch."""
    trainer = Lane()
    for number, pid in enumerate(workers):
        trainer.worker(pid, number=number)
    lanes = [Lane(pid) for pid in workers]
    for _ in range(fetches):
        trainer.step(wait=60, forward=10, backward=20, opt=10)
        for lane in lanes:
            lane.fetch(**({"ms": 90} | fetch)).gap(10)
    return [trainer, *lanes]


def input_of(states: list[tuple], lanes: list[Lane] | None = None, **tables):
    lanes = lanes or starved_job(clocks_ms=(30, 10, 0))
    return facts_of(make_timeline(*lanes, states=states, **tables)).input


def values(facts, *names: str) -> list[float]:
    return [getattr(facts, f"{name}_share").value for name in names]


def test_states_become_shares_of_the_time_that_threads_were_busy() -> None:
    found = input_of(
        [
            seen("running", 40),
            seen("read", 30, on=(0, "read")),
            seen("fault", 5),
            seen("socket", 5),
            seen("metadata", 10),
            seen("sleep", 6),
            seen("lock", 4),
            seen("pipe", 100),
        ],
        starved_job(ms=20, clocks_ms=(10, 5, 0)),
    )
    assert values(found, "read", "metadata", "sleep", "lock") == pytest.approx(
        [0.4, 0.1, 0.06, 0.04]
    )
    assert values(found, "idle") == pytest.approx([0.5])


def test_running_is_split_by_the_fetches_own_clocks() -> None:
    found = input_of([seen("running", 100)], starved_job(clocks_ms=(30, 10, 0)))
    assert values(found, "cpu", "core_wait") == pytest.approx([0.75, 0.25])


def test_running_is_all_cpu_when_the_run_queue_was_refused() -> None:
    found = input_of([seen("running", 100)], starved_job(clocks_ms=(30, -1e-6, 0)))
    assert values(found, "cpu", "core_wait") == pytest.approx([1.0, 0.0])


def test_workers_that_live_too_shortly_to_be_sampled_are_told_by_their_clocks() -> None:
    lanes = starved_job(clocks_ms=(70, 10, 0), fetches=30)
    found = input_of([seen("running", 5)], lanes)
    shares = values(found, "cpu", "core_wait", "read", "metadata")
    assert shares == pytest.approx([70 / 90, 10 / 90, 10 / 90, 0.0])
    assert 0 <= found.idle_share.value < 0.5  # they fetch for 90 of 100 ms


def test_clocks_alone_say_nothing_of_fetches_that_are_blocked() -> None:
    found = input_of([seen("running", 5)], starved_job(clocks_ms=(30, 10, 0), fetches=30))
    assert isinstance(found.read_share, Missing)


def test_few_samples_carry_no_decomposition() -> None:
    found = input_of([seen("running", 19)])
    for name in ("cpu", "core_wait", "read", "metadata", "sleep", "lock", "idle"):
        signal = getattr(found, f"{name}_share")
        assert isinstance(signal, Missing)
        assert "19" in signal.reason


def test_twenty_samples_are_enough() -> None:
    assert isinstance(input_of([seen("running", 20)]).cpu_share, Reading)


def test_what_workers_do_while_the_trainer_computes_does_not_count() -> None:
    found = input_of([seen("running", 50), seen("read", 500, phase=int(Phase.COMPUTE))])
    assert values(found, "read") == [0]


def test_helper_threads_of_a_worker_do_not_count() -> None:
    helper = (START_NS, WORKER, WORKER + 1, WAIT, "pipe", "read", 0, 500)
    assert values(input_of([seen("running", 50), helper]), "idle") == [0]


def test_a_lock_of_a_file_has_a_place_and_no_helper_threads_behind_it() -> None:
    places = [(7, "/data/all.h5", "/data", "nfs4", "0:44")]
    helper = (START_NS, WORKER, WORKER + 1, WAIT, "read", "pread64", 0, 80)
    states = [seen("lock", 60, on=(7, "flock")), seen("lock", 10), seen("running", 30), helper]
    found = input_of(states, places=places)
    assert values(found, "lock", "file_lock", "read") == pytest.approx([0.7, 0.6, 0.0])
    assert (found.lock_place.path, found.lock_place.syscall) == ("/data/all.h5", "flock")
    assert found.place is None


def test_a_worker_behind_a_lock_is_judged_by_its_helper_threads() -> None:
    helper = (START_NS, WORKER, WORKER + 1, WAIT, "read", "pread64", 0, 80)
    found = input_of([seen("lock", 90), seen("running", 10), helper])
    assert values(found, "read") == pytest.approx([80 / 90])


def test_without_workers_the_trainer_fetches_itself() -> None:
    trainer = Lane()
    for _ in range(20):
        trainer.step(wait=60)
    states = [seen("read", 30, pid=TRAINER), seen("running", 10, pid=TRAINER)]
    found = input_of(states, [trainer])
    assert values(found, "read") == pytest.approx([0.75])
    assert found.fetchers.value == 1
    assert isinstance(found.pickle_share, Missing)
    assert isinstance(found.unpickle_share, Missing)


def test_a_trainer_that_fetches_itself_has_one_fetch_under_way_also_where_nobody_looked() -> None:
    """A job of a second ends before the observer has looked."""
    trainer = Lane()
    for _ in range(20):
        trainer.put(Kind.FETCH, trainer.now_ns, 50 * MS, 0, 32, 0, 0, 0)
        trainer.step(wait=60)
    assert input_of([], [trainer]).fetchers.value == 1
    assert isinstance(input_of([], [Lane().step(wait=60).step(wait=60)]).fetchers, Missing)


def test_a_worker_at_a_pipe_inside_a_fetch_waits_for_another_process() -> None:
    found = input_of([seen("pipe", 80), seen("running", 20)])  # its fetches take 90 of 100 ms
    assert values(found, "idle")[0] < 0.2
    assert values(found, "blocked")[0] > 0.6


def test_sleeping_and_waiting_for_a_process_is_blocked_and_not_reading() -> None:
    found = input_of([seen("sleep", 50), seen("other", 30), seen("running", 20)])
    assert values(found, "blocked", "read", "sleep") == pytest.approx([0.8, 0.0, 0.5])


def stack(*frames: str, count: int = 10) -> tuple:
    fetch = "fetch (/x/site-packages/torch/utils/data/_utils/fetch.py:54)"
    return (START_NS, START_NS + 10**12, WORKER, WORKER, [fetch, *frames], count)


def test_a_sleep_inside_a_line_that_reads_counts_as_a_read() -> None:
    # A read that a preloaded library or a slow mount delays is seen as a sleep.
    lines = {"/job/data.py:7": "data = open(path, 'rb').read()"}
    found = facts_of(
        make_timeline(
            *starved_job(),
            states=[seen("sleep", 80), seen("running", 20)],
            stacks=[stack("__getitem__ (/job/data.py:7)")],
            facts={"source_lines": lines},
        )
    ).input
    assert values(found, "read", "sleep") == pytest.approx([0.8, 0.0])


def test_a_socket_below_a_line_that_asks_a_service_is_blocked_and_not_reading() -> None:
    lines = {"/job/data.py:7": "answer = connection.recv(4096)"}
    found = facts_of(
        make_timeline(
            *starved_job(),
            states=[seen("socket", 80), seen("running", 20)],
            stacks=[stack("__getitem__ (/job/data.py:7)")],
            facts={"source_lines": lines},
        )
    ).input
    assert values(found, "blocked", "read") == pytest.approx([0.8, 0.0])


def test_a_sleep_that_the_code_asks_for_stays_a_sleep() -> None:
    lines = {"/job/data.py:9": "time.sleep(0.05)  # the API allows 20 calls a second"}
    found = facts_of(
        make_timeline(
            *starved_job(),
            states=[seen("sleep", 80), seen("running", 20)],
            stacks=[stack("__getitem__ (/job/data.py:9)")],
            facts={"source_lines": lines},
        )
    ).input
    assert values(found, "read", "sleep") == pytest.approx([0.0, 0.8])


def test_fetchers_are_the_workers_that_do_not_wait_for_work() -> None:
    states = [
        seen("sleep", 50, pid=TRAINER),
        seen("read", 50, pid=200),
        seen("running", 25, pid=201),
        seen("pipe", 25, pid=201),
    ]
    found = input_of(states, starved_job(workers=(200, 201), ms=20))
    assert found.fetchers.value == pytest.approx(1.5)


def test_fetchers_are_all_counted_though_only_some_are_looked_at_in_a_round() -> None:
    # 16 workers of which each round looks at the next 4; in every round 3 of those 4 are busy.
    workers = tuple(range(200, 216))
    states = [
        seen("pipe", 100, pid=TRAINER),
        *(seen("running" if pid % 4 else "pipe", 25, pid=pid) for pid in workers),
    ]
    assert input_of(states, starved_job(workers, ms=20)).fetchers.value == pytest.approx(12)


def test_workers_that_a_new_epoch_replaces_are_not_counted_twice() -> None:
    trainer, *lanes = starved_job(workers=(200, 201))
    trainer.worker(202, number=0).worker(203, number=1)
    states = [seen("running", 25, pid=pid) for pid in (200, 201, 202, 203)]
    assert input_of(states, [trainer, *lanes]).fetchers.value == pytest.approx(2)


def test_fetchers_are_unknown_when_no_worker_was_seen_while_the_trainer_waited() -> None:
    states = [seen("pipe", 50, pid=TRAINER), seen("read", 50, phase=int(Phase.COMPUTE))]
    assert isinstance(input_of(states).fetchers, Missing)


def test_the_place_is_the_busiest_path_of_the_busiest_mount() -> None:
    places = [
        (1, "/data/a.bin", "/data", "nfs4", "0:44"),
        (2, "/data/b.bin", "/data", "nfs4", "0:44"),
        (3, "/tmp/c.bin", "/", "ext4", "8:1"),
    ]
    states = [
        seen("read", 30, on=(1, "read")),
        seen("metadata", 25, on=(2, "openat")),
        seen("read", 40, on=(3, "read")),
        seen("fault", 5),
    ]
    place = input_of(states, places=places).place
    assert (place.mount, place.path, place.fstype, place.syscall) == (
        "/data",
        "/data/a.bin",
        "nfs4",
        "read",
    )
    assert place.share == pytest.approx(0.55)


def test_no_place_when_nothing_could_be_resolved() -> None:
    assert input_of([seen("read", 50)]).place is None


def test_pickling_is_compared_with_the_wait() -> None:
    trainer, worker = starved_job()
    feeder = Lane(WORKER, tid=WORKER + 1)
    for _ in range(20):
        feeder.gap(55).add(Kind.HANDOFF, 45, 10**6)
    found = input_of([seen("running", 50)], [trainer, worker, feeder])
    assert found.pickle_share.value == pytest.approx(45 / 60, rel=0.06)


def test_pickling_says_nothing_about_a_trainer_that_never_waits() -> None:
    lanes = [Lane().worker(WORKER), Lane(WORKER), Lane(WORKER, tid=WORKER + 1)]
    for _ in range(20):
        lanes[0].step(wait=0, forward=70, backward=20, opt=10)
        lanes[1].fetch(90).gap(10)
        lanes[2].gap(55).add(Kind.HANDOFF, 45, 10**6)
    assert isinstance(input_of([seen("running", 50)], lanes).pickle_share, Missing)


def test_unpickling_is_the_trainers_own_cpu_time_in_next_where_its_clock_was_read() -> None:
    trainer = Lane().worker(WORKER)
    for step in range(21):
        trainer.batch(50, cpu_ns=40 * MS if step % 4 == 1 else -1).gap(5).backward(10).optimizer(1)
    assert input_of([seen("pipe", 50)], [trainer]).unpickle_share.value == pytest.approx(0.8)


def test_collate_share_and_fetch_time_come_from_the_fetches() -> None:
    found = input_of([seen("running", 50)], starved_job(ms=80, clocks_ms=(70, 0, 20)))
    assert values(found, "collate") == pytest.approx([0.25])
    assert found.fetch_seconds.value == pytest.approx(0.080)


def test_fetches_before_the_window_are_left_out() -> None:
    trainer, worker = starved_job(ms=80)
    early = Lane(WORKER, start_ms=-5000).fetch(4000)
    assert input_of([seen("running", 50)], [trainer, early, worker]).fetch_seconds.value < 0.1


def test_system_share_ignores_fetches_whose_counters_the_kernel_refused() -> None:
    trainer, worker = starved_job(fetches=0)
    for step in range(20):
        trainer.step(wait=60)
        io = (1000, 0, 4, 0, 20 * MS) if step % 2 else (-1, -1, -1, -1, -1)
        worker.fetch(60, clocks_ms=(40, 0, 0), io=io)
    assert input_of([seen("running", 50)], [trainer, worker]).system_share.value == pytest.approx(
        0.5
    )


def test_fetches_for_validation_do_not_count_as_those_of_training() -> None:
    lane = Lane()
    for _ in range(3):
        lane.put(Kind.FETCH, lane.now_ns + MS, 8 * MS, -1, 32)
        lane.step()
        lane.put(Kind.FETCH, lane.now_ns + MS, 80 * MS, -1, 32)
        lane.batch(90, loader=2, grad=False)
    rows = fetch_table(make_timeline(lane), judge(make_timeline(lane))[0])
    assert (rows["dur_ns"] / MS).to_list() == [8, 8, 8]


def test_workers_in_reserve_that_never_fetch_are_not_idle_workers() -> None:
    lanes = starved_job(clocks_ms=(30, 10, 0))
    for number, pid in enumerate((201, 202, 203), start=1):
        lanes[0].worker(pid, number=number)
    parked = [seen("pipe", 100, pid=pid) for pid in (201, 202, 203)]
    found = input_of([seen("running", 100), *parked], lanes)
    assert values(found, "idle") == pytest.approx([0.0])
    assert found.fetchers.value == pytest.approx(1.0)


def crowded_job(growth: float, *, rest_ms: float = 0.0) -> list[Lane]:
    """Four workers of which only the first works on at the end: `growth` 1 slows all in turn."""
    workers = [Lane(200 + number) for number in range(4)]
    trainer = Lane()
    for number, lane in enumerate(workers):
        trainer.worker(lane.pid, number=number)
    for _ in range(40):
        trainer.step(wait=60, forward=10, backward=20, opt=10)
    for lane in workers:
        for turn in range(24):
            cpu_ms = 160 * (1 + 0.1 * (turn % 3))
            lane.fetch(cpu_ms, clocks_ms=(cpu_ms, 0, 0)).gap(rest_ms)
    for _ in range(6):
        alone_ms = 160 / 4**growth
        workers[0].fetch(alone_ms, clocks_ms=(alone_ms, 0, 0))
    return [trainer, *workers]


def growth_of(lanes: list[Lane]) -> Signal:
    limits = Limits(START_NS, 8, 8, None, None, {})
    return input_of([seen("run", 100)], lanes, facts={"limits": (limits,)}).cpu_growth


@pytest.mark.parametrize("growth", [0, 1])
def test_cpu_time_that_grows_with_the_workers_at_once_shows_at_the_end_of_an_epoch(
    growth: int,
) -> None:
    found = growth_of(crowded_job(growth))
    assert isinstance(found, Reading)
    assert found.value == pytest.approx(growth, abs=0.1)
    found.check()


def test_workers_that_idle_in_between_overlap_more_while_they_are_slow_so_nothing_is_said() -> None:
    assert isinstance(growth_of(crowded_job(1, rest_ms=400)), Missing)


def visited_job(growth: float) -> Signal:
    """One worker, and a neighbour that has a core in every other pair of seconds."""
    trainer, worker = Lane(), Lane(WORKER)
    trainer.worker(WORKER, number=0)
    host, busy_s = [], 0.0
    for second in range(13):
        cores = 1 + second // 2 % 2
        for turn in range(10):
            trainer.step(wait=60, forward=10, backward=20, opt=10)
            cpu_ms = 40 * cores**growth * (1 + 0.02 * (turn % 3))
            worker.fetch(95, clocks_ms=(cpu_ms, 0, 0)).gap(5)
        host.append((START_NS + second * 1000 * MS, "cpu.busy_ns", busy_s * 1e9))
        busy_s += cores
    return input_of([seen("running", 100)], [trainer, worker], host=host).beside_growth


@pytest.mark.parametrize("growth", [0, 1])
def test_a_neighbour_in_the_same_memory_shows_in_the_seconds_that_it_runs(growth: int) -> None:
    found = visited_job(growth)
    assert isinstance(found, Reading)
    assert found.value == pytest.approx(growth, abs=0.1)
    found.check()


def test_a_host_that_is_as_busy_all_the_time_shows_nothing_of_its_memory() -> None:
    assert isinstance(growth_of(crowded_job(1)), Reading)
    assert isinstance(input_of([seen("running", 100)]).beside_growth, Missing)
