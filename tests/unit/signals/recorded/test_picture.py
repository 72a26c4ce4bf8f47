"""A run over time: buckets leave nothing out, keep their extremes, and stay few."""

from typing import Any

import pytest

from fuelline.schema.diagnosis.fixes import FixEvent
from fuelline.schema.diagnosis.picture import RunPicture
from fuelline.schema.wire import Kind, PauseKind, Phase
from fuelline.signals import levels
from fuelline.signals.recorded import picture as pictures
from fuelline.signals.recorded.picture import picture_run
from tests.unit.builders import MS, START_NS, TRAINER, Lane, facts_of, judge, make_timeline

WATCHED = (START_NS, TRAINER, TRAINER, int(Phase.COMPUTE), "running", "", 0, 5)


def picture_of(*lanes: Lane, fixes: list[FixEvent] | None = None, **tables: list) -> RunPicture:
    timeline = make_timeline(*lanes, **{"states": [WATCHED], **tables})
    trainer, segments = judge(timeline)
    found = picture_run(
        timeline,
        trainer,
        segments,
        budget=facts_of(timeline).budget,
        fixes=fixes or [],
        judged=segments,
    )
    found.check()
    return found


def steps(count: int, slow: int | None = None) -> Lane:
    lane = Lane()
    for number in range(count):
        lane.step(wait=500 if number == slow else 2, forward=1, backward=2, opt=1).gap(1)
    return lane


def test_the_parts_of_all_buckets_are_the_budget() -> None:
    lane = steps(30)
    picture, budget = picture_of(lane), facts_of(make_timeline(lane, states=[WATCHED])).budget
    sums = {part: sum(values) for part, values in picture.levels[0].parts_us.items()}
    for part in budget:
        assert sums.get(part.part, 0) / 1e6 == pytest.approx(part.seconds, abs=1e-4), part
    assert sum(picture.levels[0].length_us) / 1e6 == pytest.approx(picture.seconds, abs=1e-4)


def test_many_steps_become_few_buckets_that_keep_the_longest_and_the_shortest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(levels, "MOST_BUCKETS", 64)
    monkeypatch.setattr(levels, "_FEWEST", 16)
    picture = picture_of(steps(1000, slow=777))
    assert len(picture.levels) > 1
    for level in picture.levels:
        assert sum(level.steps) == 999
        assert max(level.most_us) == 505_000
        assert (
            min(least for least, count in zip(level.least_us, level.steps, strict=True) if count)
            == 7_000
        )
    assert len(picture.levels[0].steps) <= 65  # and one for what follows the last step
    assert len(picture.levels[-1].steps) <= 17


def test_a_checkpoint_a_validation_and_a_fix_are_marked_when_they_were() -> None:
    lane = steps(10)
    at_ns = lane.now_ns
    lane.add(Kind.PAUSE, 40, 1000, 0, int(PauseKind.CHECKPOINT))
    for _ in range(10):
        lane.step(wait=2, forward=1, backward=2, opt=1)
    change = FixEvent(event="change", at_ns=at_ns + 60 * MS, active=2, was=(1, 2))
    moments = {each.kind: each for each in picture_of(lane, fixes=[change]).moments}
    assert moments["checkpoint"].at_s == pytest.approx((at_ns - START_NS) / 1e9)
    assert moments["checkpoint"].seconds == pytest.approx(0.04)
    assert moments["fix"].detail == "1 to 2 workers"


@pytest.mark.parametrize(
    ("turned", "words"),
    [
        ({"active": 1, "window": 4, "was": (1, 2)}, "2 to 4 batches ahead"),
        ({"active": 1, "window": 2, "was": (2, 4)}, "2 to 1 worker"),
        ({"active": 1, "window": 2, "why": "it did not help"}, "it did not help: 1 worker"),
    ],
)
def test_what_a_fix_turned_is_told(turned: dict[str, Any], words: str) -> None:
    lane = steps(10)
    change = FixEvent(event="change", at_ns=lane.now_ns - MS, **turned)
    (moment,) = picture_of(lane, fixes=[change]).moments
    assert moment.detail == words


def test_of_very_many_moments_a_few_of_each_kind_are_kept_and_the_rest_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pictures, "MOST_MOMENTS", 10)
    lane = Lane()
    for _ in range(100):
        lane.step(wait=2, forward=1, backward=2, opt=1)
        lane.add(Kind.PAUSE, 4, 1000, 0, int(PauseKind.CHECKPOINT))
    picture = picture_of(lane)
    assert 5 <= len(picture.moments) <= 10
    assert len(picture.moments) + picture.moments_left_out == 100


def test_a_bin_without_a_reading_is_a_gap_and_not_a_zero() -> None:
    lane = Lane()
    for _ in range(60):
        lane.step(wait=50, forward=20, backward=20, opt=10)
    second = 1000 * MS
    values = [(START_NS + at * second, "memory.available_bytes", 5e9) for at in (4,)]
    lanes = {each.name: each for each in picture_of(lane, host=values).lanes}
    free = lanes["memory"].series["free"]
    assert free[0] is None
    assert free[-1] == 5e9


def test_workers_are_shared_out_between_core_queue_and_waiting() -> None:
    loop, worker = Lane(), Lane(pid=200)
    loop.worker(200)
    for _ in range(40):
        loop.step(wait=50, forward=20, backward=20, opt=10)
        worker.fetch(100, clocks_ms=(60, 10, 0))
    lanes = {each.name: each for each in picture_of(loop, worker).lanes}
    series = {name: values[1] for name, values in lanes["workers"].series.items()}
    assert series == pytest.approx({"running": 0.6, "for core": 0.1, "blocked": 0.3}, abs=0.01)


def test_what_workers_are_blocked_on_is_told_by_the_observers_samples() -> None:
    loop, worker = Lane(), Lane(pid=200)
    loop.worker(200)
    for _ in range(40):
        loop.step(wait=50, forward=20, backward=20, opt=10)
        worker.fetch(100, clocks_ms=(20, 0, 0))
    seen = [
        (START_NS + at * 1000 * MS, 200, 200, 0, state, "", 0, count)
        for at in range(4)
        for state, count in (("read", 6), ("sleep", 2), ("pipe", 50), ("running", 20))
    ]
    lanes = {each.name: each for each in picture_of(loop, worker, states=[WATCHED, *seen]).lanes}
    series = {name: values[1] for name, values in lanes["workers"].series.items()}
    wanted = {"running": 0.2, "for core": 0.0, "on files": 0.6, "asleep": 0.2}
    assert series == pytest.approx(wanted, abs=0.01)


def test_a_device_has_its_ladder_over_time_and_a_held_down_clock_is_marked() -> None:
    lane = Lane()
    for _ in range(80):
        lane.step(wait=50, forward=20, backward=20, opt=10)
    samples = [
        (START_NS + at * 1000 * MS, "gpu0", name, value)
        for at in range(1, 8)
        for name, value in (
            ("job.frac", 1.0),
            ("util.gpu_frac", 0.9),
            ("gpm.sm_frac", 0.4),
            ("throttle.thermal_frac", 0.5 if 3 <= at <= 4 else 0.0),
        )
    ]
    picture = picture_of(lane, devices=samples)
    (device,) = [each for each in picture.lanes if each.name == "device"]
    assert device.series["busy"][3] == 0.9
    assert device.series["sms"][3] == 0.4
    assert "tensor" not in device.series
    (throttled,) = [each for each in picture.moments if each.kind == "throttled"]
    assert throttled.at_s == pytest.approx(3, abs=1.1)
    assert throttled.seconds == pytest.approx(2, abs=1.2)


def test_memory_counts_a_process_from_its_first_sample_to_its_last() -> None:
    lane = Lane()
    for _ in range(60):
        lane.step(wait=50, forward=20, backward=20, opt=10)

    def sample(second: int, pid: int, rss_bytes: int) -> tuple[int, ...]:
        return (START_NS + second * 1000 * MS, pid, 0, 0, 0, 0, 0, 0, 0, rss_bytes)

    samples = [sample(1, 100, 4), sample(5, 100, 6), sample(2, 200, 10), sample(3, 200, 10)]
    lanes = {each.name: each for each in picture_of(lane, processes=samples).lanes}
    assert [each for each in lanes["memory"].series["held"] if each] == [4.0, 14.0, 14.0, 4.0, 6.0]
