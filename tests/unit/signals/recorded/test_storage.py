"""What the storage did: latency or bandwidth, whose work, whose limit."""

import pytest

from fuelline.schema.diagnosis.facts import StorageFacts
from fuelline.schema.readings import Missing, Reading
from fuelline.schema.run.samples import Limits
from fuelline.schema.wire import Phase
from tests.unit.builders import MS, START_NS, TRAINER, Lane, facts_of, make_timeline

DATA = (1, "/data/train/a.bin", "/data", "ext4", "8:1")
CALLS, SIZE = 10, 1_000_000
STEPS = 100
WALL_S = (STEPS - 1) * 0.1


def trainer_with(*workers: int) -> Lane:
    """100 ms a step, so the window of 100 steps is 9.9 s long."""
    lane = Lane()
    for number, pid in enumerate(workers):
        lane.worker(pid, number=number)
    for _ in range(STEPS):
        lane.step(wait=60, forward=10, backward=20, opt=10)
    return lane


READS = (SIZE, SIZE, CALLS, 0, 0)


def reading(lane: Lane, ms: float, io: tuple[int, ...] = READS) -> Lane:
    return lane.fetch(ms, io=io)


def blocked(count: int = 100, *, pid: int = 200, place: int = 1) -> tuple:
    return (START_NS, pid, pid, int(Phase.WAIT), "read", "read", place, count)


def storage_of(*lanes: Lane, **tables) -> StorageFacts:
    facts = tables.pop("facts", {})
    tables = {"states": [blocked()], "places": [DATA], **tables}
    return facts_of(make_timeline(*lanes, facts=facts, **tables)).storage


def crowds(time_of_one_ms: float, growth: float, io: tuple[int, ...] = READS) -> list[Lane]:
    """Alternately one and four fetches at once; `growth` 1: each takes its turn, 0: none waits."""
    workers = [Lane(200 + number) for number in range(4)]
    at_ms = 0.0
    for turn in range(24):
        busy = 4 if turn % 2 else 1
        ms = time_of_one_ms * busy**growth
        for lane in workers[:busy]:
            lane.now_ns = START_NS + int(at_ms * MS)
            reading(lane, ms, io)
        at_ms += ms + 5
    return [trainer_with(200, 201, 202, 203), *workers]


def test_latency_does_not_grow_with_the_number_in_flight() -> None:
    assert storage_of(*crowds(40, growth=0)).saturation.value == pytest.approx(0, abs=0.01)


def test_a_shared_bandwidth_makes_each_fetch_take_its_turn() -> None:
    assert storage_of(*crowds(40, growth=1)).saturation.value == pytest.approx(1, abs=0.01)


def test_saturation_is_missing_when_the_number_in_flight_never_changes() -> None:
    lanes = [Lane(200), Lane(201)]
    for _ in range(40):
        for lane in lanes:
            reading(lane, 50)
    saturation = storage_of(trainer_with(200, 201), *lanes).saturation
    assert isinstance(saturation, Missing)
    assert "never changed" in saturation.reason


@pytest.mark.parametrize("growth", [0, 1])
def test_workers_that_are_alone_at_the_end_of_an_epoch_are_enough_to_see_it(growth: int) -> None:
    workers = [Lane(200 + number) for number in range(4)]
    for lane in workers:
        for turn in range(20):
            reading(lane, 40 * 4**growth * (1 + 0.1 * (turn % 3)))
    for _ in range(2):
        reading(workers[0], 40)
    saturation = storage_of(trainer_with(200, 201, 202, 203), *workers).saturation
    assert isinstance(saturation, Reading)
    assert saturation.value == pytest.approx(growth, abs=0.1)


@pytest.mark.parametrize("growth", [0, 1])
def test_reads_from_sockets_which_nobody_counts_show_it_by_the_sample(growth: int) -> None:
    lanes = crowds(40, growth=growth, io=(0, 0, 0, 0, 0))
    assert storage_of(*lanes).saturation.value == pytest.approx(growth, abs=0.01)


def test_fetches_that_are_longer_when_alone_do_not_show_what_a_queue_does() -> None:
    saturation = storage_of(*crowds(400, growth=-1)).saturation
    assert isinstance(saturation, Missing)
    assert "the fewer" in saturation.reason


def test_saturation_of_fetches_that_scatter_wildly_is_missing() -> None:
    lanes = crowds(40, growth=0)
    for at, lane in enumerate(lanes[1:]):
        lane.rows = [
            (*row[:5], row[5], row[6] * (1 if row[2] == 3 else 10 ** ((at + n) % 5)), *row[7:])
            for n, row in enumerate(lane.rows)
        ]
    assert isinstance(storage_of(*lanes).saturation, Missing)


def test_request_time_and_rates_come_from_the_fetches() -> None:
    worker = Lane(200)
    for _ in range(STEPS):
        worker.fetch(100, clocks_ms=(20, 10, 0), io=(SIZE, 0, CALLS, 0, 0))
    storage = storage_of(trainer_with(200), worker)
    assert storage.request_seconds.value == pytest.approx(0.007)
    assert storage.bytes_per_call.value == pytest.approx(SIZE / CALLS)
    assert storage.read_bytes_per_s.value == pytest.approx(10 * SIZE, rel=0.02)


def test_fetches_with_counters_stand_for_those_without() -> None:
    worker = Lane(200)
    for number in range(STEPS):
        worker.fetch(100, io=(-1, -1, -1, -1, -1) if number % 4 else (SIZE, 0, CALLS, 0, 0))
    storage = storage_of(trainer_with(200), worker)
    assert storage.read_bytes_per_s.value == pytest.approx(10 * SIZE, rel=0.02)


def test_page_faults_count_as_requests_of_a_memory_mapped_file() -> None:
    worker = Lane(200)
    for _ in range(STEPS):
        worker.fetch(100, io=(SIZE, 0, 0, 20, 0))
    assert storage_of(trainer_with(200), worker).request_seconds.value == pytest.approx(0.005)


def test_no_counters_means_missing_rates_not_zero() -> None:
    worker = Lane(200)
    for _ in range(STEPS):
        worker.fetch(100, io=(-1, -1, -1, -1, -1))
    storage = storage_of(trainer_with(200), worker)
    for name in ("request_seconds", "read_bytes_per_s", "bytes_per_call", "disk_bytes_per_s"):
        assert isinstance(getattr(storage, name), Missing), name


def test_what_comes_through_sockets_is_not_counted_by_the_kernel_and_so_missing() -> None:
    worker = Lane(200)
    for _ in range(STEPS):
        worker.fetch(100, clocks_ms=(2, 0, 0), io=(0, 0, 0, 0, 0))
    worker.fetch(100, clocks_ms=(2, 0, 0), io=(900, 0, 3, 0, 0))
    storage = storage_of(trainer_with(200), worker)
    for name in ("request_seconds", "read_bytes_per_s", "bytes_per_call"):
        assert isinstance(getattr(storage, name), Missing), name


def test_in_flight_are_the_workers_that_are_blocked_on_storage() -> None:
    waiting = (START_NS, TRAINER, TRAINER, int(Phase.WAIT), "pipe", "poll", 0, 50)
    computing = (START_NS, 201, 201, int(Phase.WAIT), "running", "", 0, 25)
    states = [waiting, blocked(50, pid=200), blocked(25, pid=201), computing]
    lanes = [trainer_with(200, 201), reading(Lane(200), 50), reading(Lane(201), 50)]
    assert storage_of(*lanes, states=states).in_flight.value == pytest.approx(1.5)


def test_in_flight_counts_all_of_16_workers_though_a_round_looks_at_4() -> None:
    pids = range(200, 216)
    waiting = (START_NS, TRAINER, TRAINER, int(Phase.WAIT), "pipe", "poll", 0, 100)
    states = [waiting, *(blocked(25, pid=pid) for pid in pids)]
    lanes = [trainer_with(*pids), *(reading(Lane(pid), 50) for pid in pids)]
    assert storage_of(*lanes, states=states).in_flight.value == pytest.approx(16)


def limits(**io: float) -> dict:
    return {"limits": (Limits(START_NS, 4, 4, None, None, {"8:1": io}),)}


def counter(name: str, per_s: float) -> list[tuple]:
    """A counter that grows evenly over the window and beyond, read every second."""
    return [(START_NS + second * 10**9, name, per_s * second) for second in range(12)]


def processes(pid: int = 200, **per_s: float) -> list[tuple]:
    """Cumulative process counters, read every second."""
    names = ("cpu_ns", "rchar", "disk_read", "read_calls", "wchar", "disk_write", "faults")
    return [
        (START_NS + s * 10**9, pid, *(int(per_s.get(name, 0) * s) for name in names), 0)
        for s in range(11)
    ]


def limited(**tables) -> StorageFacts:
    return storage_of(trainer_with(200), reading(Lane(200), 50), **tables)


def test_a_read_limit_is_compared_with_the_cgroups_own_counters() -> None:
    storage = limited(host=counter("cgroup.io.8:1.read_bytes", 9.5e6), facts=limits(read_bps=10e6))
    assert storage.limit_use.value == pytest.approx(0.95, rel=0.12)
    assert "10.0 MB/s" in storage.limit_text


def test_a_limit_holds_although_the_job_that_had_it_is_gone_at_the_last_look() -> None:
    held = limits(read_bps=10e6)["limits"][0]
    before = Limits(START_NS - 1, 4, 4, None, None, {})
    after = Limits(START_NS + 30 * 10**9, 4, 4, None, None, {})
    counted = counter("cgroup.io.8:1.read_bytes", 9.5e6)
    storage = limited(host=counted, facts={"limits": (before, held, after)})
    assert storage.limit_use.value == pytest.approx(0.95, rel=0.12)


def test_a_job_that_pauses_is_at_its_limit_all_the_same() -> None:
    moved = [0, 10, 20, 20, 20, 30, 40, 50, 60, 60, 70, 80]  # MB at each second
    host = [
        (START_NS + second * 10**9, "cgroup.io.8:1.read_bytes", total * 1e6)
        for second, total in enumerate(moved)
    ]
    storage = limited(host=host, facts=limits(read_bps=10e6))
    assert storage.limit_use.value == pytest.approx(1)


def test_without_cgroup_counters_the_jobs_own_bytes_are_compared() -> None:
    storage = limited(processes=processes(disk_read=8e6), facts=limits(read_bps=10e6))
    assert storage.limit_use.value == pytest.approx(0.8, rel=0.12)


def test_a_limit_on_operations_counts_as_a_limit() -> None:
    storage = limited(host=counter("cgroup.io.8:1.read_operations", 50), facts=limits(read_iops=50))
    assert storage.limit_use.value == pytest.approx(1, rel=0.12)
    assert "50 reads/s" in storage.limit_text


def test_a_limit_for_another_device_does_not_matter() -> None:
    rows = [(1, "/data/a", "/data", "ext4", "8:2")]
    storage = limited(
        places=rows, host=counter("cgroup.io.8:1.read_bytes", 9e6), facts=limits(read_bps=1e7)
    )
    assert isinstance(storage.limit_use, Missing)


def test_a_busy_device_is_seen_and_an_unknown_one_is_missing() -> None:
    busy = limited(host=counter("disk.8:1.busy_ms", 950)).device_busy
    assert busy.value == pytest.approx(0.95, rel=0.12)
    assert isinstance(limited(places=[(1, "/n/a", "/n", "nfs4", "0:44")]).device_busy, Missing)


def test_the_queue_of_a_device_is_how_many_requests_it_has_at_a_time() -> None:
    queue = limited(host=counter("disk.8:1.weighted_ms", 3000)).device_queue
    assert queue.value == pytest.approx(3, rel=0.12)
    assert isinstance(limited(host=counter("disk.8:2.weighted_ms", 3000)).device_queue, Missing)


def test_others_matter_only_when_the_device_is_busy() -> None:
    def shared(busy_ms: float) -> StorageFacts:
        return limited(
            host=[
                *counter("disk.8:1.busy_ms", busy_ms),
                *counter("disk.8:1.reads", 1000),
                *counter("disk.8:1.read_bytes", 100e6),
            ],
            processes=processes(disk_read=20e6, read_calls=100),
        )

    assert shared(950).others_share.value == pytest.approx(0.8, rel=0.1)
    assert isinstance(shared(300).others_share, Missing)


def crowd(mount_of_others: str) -> StorageFacts:
    """The job has 1 thread blocked on /data, the others have 3, at each of five looks."""
    waiting = (START_NS, TRAINER, TRAINER, int(Phase.WAIT), "pipe", "poll", 0, 100)
    there = (2, "/data/tmp/x", mount_of_others, "ext4", "8:1")
    others = [
        (START_NS + second * 10**9, 2 * 10**9, 900, name, 0, 0, 0, 10, 2, blocked)
        for second in (1, 3, 5, 7, 9)
        for name, blocked in (("indexer", 2), ("rsync", 1))
    ]
    return limited(states=[waiting, blocked()], places=[DATA, there], others=others)


def test_neighbours_that_are_blocked_on_the_same_mount_are_counted_and_named() -> None:
    storage = crowd("/data")
    assert storage.others_name == "indexer"
    assert storage.others_share.value == pytest.approx(0.75, rel=0.02)


def test_neighbours_on_another_mount_do_not_matter() -> None:
    assert isinstance(crowd("/scratch").others_share, Missing)


def test_refaults_are_compared_with_what_came_from_disk() -> None:
    storage = limited(
        host=counter("cgroup.memory.refault_file_pages", 1000),
        processes=processes(disk_read=8 * 1000 * 4096),
    )
    assert storage.refault_share.value == pytest.approx(0.125, rel=0.12)


def test_refaults_of_others_do_not_count_where_nothing_had_to_be_dropped() -> None:
    evictions = [
        row
        for name in ("cgroup.memory.limit_hits", "memory.direct_scan_pages")
        for row in counter(name, 0)
    ]
    refaults = counter("memory.refault_file_pages", 8000)
    read = processes(disk_read=8 * 1000 * 4096)
    quiet = counter("memory.background_scan_pages", 0)
    storage = limited(host=[*refaults, *evictions, *quiet], processes=read)
    assert storage.refault_share.value == 0
    pressed = counter("memory.background_scan_pages", 10)
    storage = limited(host=[*refaults, *evictions, *pressed], processes=read)
    assert storage.refault_share.value == pytest.approx(1, rel=0.12)


def test_refaults_do_not_matter_when_reads_are_served_elsewhere() -> None:
    storage = limited(
        host=counter("cgroup.memory.refault_file_pages", 1000),
        processes=processes(disk_read=1000 * 4096, rchar=10 * 1000 * 4096),
    )
    assert isinstance(storage.refault_share, Missing)


def test_refaults_are_unknown_when_nothing_came_from_disk() -> None:
    storage = limited(host=counter("memory.refault_file_pages", 0), processes=processes())
    assert isinstance(storage.refault_share, Missing)


def test_memory_use_is_the_last_gauge_over_the_limit() -> None:
    facts = {"limits": (Limits(START_NS, 4, 4, None, 1000, {}),)}
    gauge = [
        (START_NS, "cgroup.memory.usage_bytes", 100.0),
        (START_NS + 5, "cgroup.memory.usage_bytes", 900.0),
    ]
    assert limited(host=gauge, facts=facts).memory_use.value == pytest.approx(0.9)
    assert isinstance(limited(host=gauge).memory_use, Missing)


def test_calls_too_few_for_what_fetches_are_blocked_in_give_no_time_of_a_read() -> None:
    """Data that comes from a socket: the kernel counts a read now and then, of something else."""
    worker = Lane(200)
    for number in range(100):
        worker.fetch(50, io=(100, 0, 1, 0, 0) if number == 50 else (0, 0, 0, 0, 0))
    found = storage_of(trainer_with(200), worker)
    why = "fetches are blocked in calls that the kernel does not count as reads"
    assert found.request_seconds == found.read_bytes_per_s == Missing(reason=why)
