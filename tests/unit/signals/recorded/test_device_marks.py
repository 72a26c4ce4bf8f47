"""What marks say of a device: a host that queues work, a device that runs behind, two clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fuelline.diagnose.rules.recorded.slow_copies import SlowCopies
from fuelline.schema.diagnosis.devices import DeviceFacts
from fuelline.schema.diagnosis.facts import Facts
from fuelline.schema.readings import Reading
from fuelline.schema.wire import Flag, Kind, MarkPlace
from fuelline.signals.recorded.device_marks import measure_device_side
from tests.unit.builders import MS, START_NS, Lane, facts_of, make_timeline
from tests.unit.builders import judge as judged

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.findings import DeviceBudget

LATENCY_NS = 8_000
AWAY_NS = 5_000_000_000_000
"""The device's clock began at another moment than the host's."""
DRIFT = 20e-6
_LOOKS = {MarkPlace.WAIT_END, MarkPlace.BACKWARD_END, MarkPlace.STEP_END}


class Job(Lane):
    """A trainer with a device beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.free_ns = 0.0
        self.pending: list[tuple[int, float, MarkPlace]] = []

    def launch(self, host_ms: float, device_ms: float, kernels: int = 20) -> Job:
        """The host queues kernels, evenly over its time."""
        for _ in range(kernels):
            self.gap(host_ms / kernels)
            self.free_ns = max(self.free_ns, self.now_ns + LATENCY_NS) + device_ms / kernels * MS
        return self

    def mark(self, place: MarkPlace) -> Job:
        if place in _LOOKS:
            self.look()
        self.pending.append((self.now_ns, max(self.free_ns, self.now_ns + LATENCY_NS), place))
        return self

    def look(self) -> Job:
        """Read the marks that the device has passed by now."""
        while self.pending and self.pending[0][1] <= self.now_ns:
            at_ns, passed_ns, place = self.pending.pop(0)
            device_ns = int((passed_ns - START_NS) * (1 + DRIFT)) + AWAY_NS
            fields = (0, device_ns, 1, 7, int(place))
            self.put(Kind.MARK, at_ns, self.now_ns - at_ns, *fields)
        return self

    def wait_for_device(self) -> Job:
        """The host can go on once all that it queued is done."""
        self.now_ns = max(self.now_ns, int(self.free_ns) + LATENCY_NS)
        return self.look()

    def take(self, ms: float) -> Job:
        self.mark(MarkPlace.WAIT_BEGIN)
        self.batch(ms)
        return self.mark(MarkPlace.WAIT_END)

    def copy(
        self, ms: float, *, flags: int = 0, size_bytes: int = 10_000_000, call_ms: float = 0
    ) -> Job:
        """A blocking copy: it waits for the device's earlier work first."""
        start_ns = self.now_ns
        self.mark(MarkPlace.COPY_BEGIN).gap(call_ms)
        self.free_ns = max(self.free_ns, self.now_ns + LATENCY_NS) + ms * MS
        self.wait_for_device()
        self.put(Kind.COPY, start_ns, self.now_ns - start_ns, size_bytes, flags=flags)
        return self.mark(MarkPlace.COPY_END)

    def learn(self, host_ms: float, device_ms: float) -> Job:
        """Forward, backward and optimizer: 0.3, 0.5 and 0.2 of either time."""
        self.launch(0.3 * host_ms, 0.3 * device_ms).mark(MarkPlace.BACKWARD_BEGIN)
        start_ns = self.now_ns
        self.launch(0.5 * host_ms, 0.5 * device_ms)
        self.put(Kind.BACKWARD, start_ns, self.now_ns - start_ns)
        self.mark(MarkPlace.BACKWARD_END).launch(0.2 * host_ms, 0.2 * device_ms)
        return self

    def update(self) -> Job:
        self.optimizer(0)
        self.gap(0.02)
        return self.mark(MarkPlace.STEP_END)


def told_by_driver(job: Job, busy: float) -> DeviceBudget:
    """The facts with a driver's library that says for how much of the time kernels ran."""
    timeline = make_timeline(job)
    trainer, segments = judged(timeline)
    seen = DeviceFacts(device="gpu0", name="x", utilisation=Reading(value=busy, unit="frac"))
    side = measure_device_side(timeline, trainer, segments, [seen])
    assert side.budget is not None
    side.budget.check()
    return side.budget


def judge(job: Job) -> Facts:
    facts = facts_of(make_timeline(job))
    assert facts.device_budget is not None
    facts.device_budget.check()
    return facts


def shares(facts: Facts | DeviceBudget) -> dict[str, float]:
    budget = facts.device_budget if isinstance(facts, Facts) else facts
    assert budget is not None
    return {part: budget.share_of(part) for part in budget.parts if budget.share_of(part) > 0.005}


def test_a_device_that_is_always_behind_computes() -> None:
    job = Job()
    for _ in range(40):
        job.take(3).learn(5, 20).update()
        if job.free_ns - job.now_ns > 60 * MS:  # the launch queue is full
            job.now_ns = int(job.free_ns - 60 * MS)
    facts = judge(job)
    assert shares(facts)["computing"] > 0.9
    assert facts.input.exposed_share.value == pytest.approx(0, abs=0.01)
    assert facts.compute.paced_share.value < 0.02


@pytest.mark.parametrize("microbatches", [1, 4, 16])
def test_waiting_for_input_is_seen_whatever_the_accumulation(microbatches: int) -> None:
    job = Job()
    for _ in range(64 // microbatches):
        for _ in range(microbatches):
            job.take(40).learn(4, 20)
        job.update()
    assert shares(judge(job))["waiting for input"] == pytest.approx(24 / 44, abs=0.03)


def test_two_optimizers_change_nothing() -> None:
    job = Job()
    for _ in range(40):
        job.take(40).learn(2, 10).update().learn(2, 10)
        job.optimizer(0, which=2)
        job.mark(MarkPlace.STEP_END)
    assert shares(judge(job))["waiting for input"] == pytest.approx(24 / 44, abs=0.02)


def test_a_device_that_is_never_behind_is_paced_by_the_host() -> None:
    job = Job()
    for _ in range(40):
        job.take(0.1).learn(20, 5).update()
    facts = judge(job)
    assert shares(facts)["host-paced"] > 0.95
    assert isinstance(facts.compute.paced_share, Reading)
    assert facts.compute.paced_share.value > 0.95
    assert facts.compute.paced_share.low == pytest.approx(0, abs=0.02)
    assert facts.device_budget is not None
    assert all(lead < 200e-6 for lead in facts.device_budget.lead_seconds.values())


def test_steps_in_which_the_device_was_behind_divide_those_in_which_it_was_not() -> None:
    job = Job()
    for number in range(60):
        job.take(0.1).learn(20 if number % 2 else 4, 10).update()
    found = shares(judge(job))
    assert found.get("host-paced", 0) < 0.02
    assert found["computing"] == pytest.approx(10 / 12.5, abs=0.12)


def test_a_blocking_copy_is_charged_with_its_own_time_alone() -> None:
    job = Job()
    for _ in range(40):
        job.take(0.1).copy(3).learn(5, 20).update()
    facts = judge(job)
    assert shares(facts)["copies"] == pytest.approx(3 / 23, abs=0.02)
    assert facts.share_of("transfer") == pytest.approx(18 / 23, abs=0.05)
    assert facts.exposed_share_of("transfer") == pytest.approx(3 / 23, abs=0.02)
    assert facts.transfer.bytes_per_s.value == pytest.approx(10_000_000 / 3e-3, rel=0.05)


@pytest.mark.parametrize(("size_bytes", "copying"), [(8, 0.0), (1_000_000, 1.0)])
def test_a_copy_of_a_few_bytes_is_the_hosts_way_to_it(size_bytes: int, copying: float) -> None:
    """A device that has run dry waits for the call; ten milliseconds are a slow megabyte."""
    job = Job()
    for _ in range(40):
        job.take(0.1).copy(0.002, size_bytes=size_bytes, call_ms=3).learn(1, 7).wait_for_device()
        job.update()
    spent = shares(judge(job))
    assert spent.get("copies", 0) == pytest.approx(copying * 3 / 10.1, abs=0.02)
    assert spent.get("waiting for the host", 0) >= (1 - copying) * 3 / 10.1 - 0.02


def test_the_loops_own_code_leaves_the_device_waiting_for_the_host() -> None:
    job = Job()
    for _ in range(40):
        job.take(0.1).learn(5, 20).update()
        job.mark(MarkPlace.SYNC_BEGIN)
        start_ns = job.now_ns
        job.wait_for_device()
        job.put(Kind.SYNC, start_ns, job.now_ns - start_ns, 0, flags=Flag.IMPLICIT)
        job.gap(15)
    facts = judge(job)
    assert shares(facts)["waiting for the host"] == pytest.approx(15 / 35, abs=0.02)
    assert facts.felt_frac("loop") == pytest.approx(1, abs=0.01)


def test_starting_an_epochs_workers_is_felt_by_a_device_that_has_run_dry() -> None:
    job = Job()
    for _ in range(4):
        for _ in range(10):
            job.take(0.1).learn(5, 20).update()
        job.wait_for_device()
        job.iterator(100)
    facts = judge(job.take(0.1).learn(5, 20).update())
    assert facts.felt_frac("epoch start") == pytest.approx(1, abs=0.05)


def test_copies_in_the_queue_of_the_kernels_are_named_though_nobody_waits_for_them() -> None:
    job = Job()
    for _ in range(60):
        job.take(0.1)
        start_ns = job.now_ns
        job.mark(MarkPlace.COPY_BEGIN).launch(0.02, 12, kernels=1)
        flags = Flag.PINNED | Flag.NON_BLOCKING
        job.put(Kind.COPY, start_ns, job.now_ns - start_ns, 10_000_000, flags=flags)
        job.mark(MarkPlace.COPY_END).learn(1, 6).update()
        if job.free_ns - job.now_ns > 60 * MS:
            job.now_ns = int(job.free_ns - 60 * MS)
    facts = judge(job)
    assert shares(facts)["copies"] == pytest.approx(12 / 18, abs=0.05)
    finding = SlowCopies().check(facts)
    assert finding is not None
    assert finding.lost_share == pytest.approx(12 / 18, abs=0.05)


def test_a_recording_without_marks_has_no_device_budget() -> None:
    assert facts_of(make_timeline(Lane().step().step().step())).device_budget is None


def test_marks_are_no_time_of_the_host() -> None:
    """They overlap whatever it did until it knew that they had been passed."""
    job, plain = Job(), Job()
    for lane in (job, plain):
        for _ in range(10):
            lane.take(3).learn(5, 20).update()
            lane.now_ns = max(lane.now_ns, int(lane.free_ns - 60 * MS))
    plain.rows = [row for row in plain.rows if row[2] != Kind.MARK]
    assert facts_of(make_timeline(job)).budget == facts_of(make_timeline(plain)).budget


def test_waiting_for_ranks_on_the_device_is_not_hidden_by_the_hosts_going_on() -> None:
    """The host queues the collective and goes on; its device stands in it for 10 ms."""
    job = Job()
    for _ in range(60):
        job.take(3).learn(2, 20).mark(MarkPlace.COLLECTIVE_BEGIN)
        job.add(Kind.COLLECTIVE, 0.05, 1, 1000, 7, 0, 2)
        job.free_ns += 10 * MS
        job.mark(MarkPlace.COLLECTIVE_END).update()
        job.now_ns = max(job.now_ns, int(job.free_ns - 60 * MS))
    facts = judge(job)
    assert shares(facts)["collectives"] == pytest.approx(1 / 3, abs=0.03)
    assert facts.felt_frac("collectives") == 1


def test_a_device_that_is_behind_has_not_computed_for_longer_than_the_driver_saw() -> None:
    job = Job()
    for _ in range(40):  # 5 ms for the host and 20 for the device, which waits a bit in between
        job.take(0.1).learn(5, 20).update()
        job.wait_for_device()
    found = shares(told_by_driver(job, 0.9))
    assert found["computing"] == pytest.approx(0.9, abs=0.01)
    assert found["waiting for the host"] == pytest.approx(0.1, abs=0.02)


def test_copies_on_another_stream_meet_idle_moments_as_often_as_there_are_any() -> None:
    job = Job()
    for _ in range(40):
        job.take(0.1).learn(20, 10).update()
        for at_ns, place in ((-4 * MS, MarkPlace.BESIDE_BEGIN), (-2 * MS, MarkPlace.BESIDE_END)):
            passed_ns = job.now_ns + at_ns
            device_ns = int((passed_ns - START_NS) * (1 + DRIFT)) + AWAY_NS
            job.put(Kind.MARK, passed_ns, -at_ns, 0, device_ns, 1, 20, int(place))
    found = shares(told_by_driver(job, 0.5))
    assert found["computing"] == pytest.approx(0.5, abs=0.02)
    assert found["copies"] == pytest.approx(0.05, abs=0.01)
    assert found["waiting for the host"] == pytest.approx(0.45, abs=0.03)
