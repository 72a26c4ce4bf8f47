"""Where the last seconds of a training process went, event by event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fuelline.schema.wire import Kind, Phase
from fuelline.signals.live.trainer import LiveTrainer
from tests.unit.signals.live.growths import PID, at, event, spool, steps

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.live import LiveEvent


def shares(trainer: LiveTrainer, now_ms: float) -> dict[str, float]:
    row = trainer.row(at(now_ms), [])
    assert not row.shares or sum(share.frac for share in row.shares) == pytest.approx(1)
    return {share.part: pytest.approx(share.frac, abs=1e-6) for share in row.shares}


def test_parts_are_those_of_the_steps() -> None:
    trainer = LiveTrainer(spool(*steps(50), phase=Phase.OUTSIDE))
    assert shares(trainer, 5000) == {"input": 0.4, "compute": 0.5, "loop": 0.1}


def test_only_the_last_ten_seconds_count() -> None:
    busy = [event(Kind.WAIT, 0, 20_000), event(Kind.STEP, 20_000, 40_000)]
    assert shares(LiveTrainer(spool(*busy)), 40_000) == {"compute": 1}


def test_events_that_come_one_by_one_give_the_same_as_all_at_once() -> None:
    rows = steps(30)
    trainer = LiveTrainer(spool())
    for row in rows:
        trainer.add(spool(row))
    assert trainer.row(at(3000), []) == LiveTrainer(spool(*rows)).row(at(3000), [])


@pytest.mark.parametrize(
    ("phase", "part"),
    [
        (Phase.WAIT, "input"),
        (Phase.CHECKPOINT, "checkpoint"),
        (Phase.COMPUTE, "compute"),
        (Phase.EVAL, "validation"),
        (Phase.SOURCE_START, "epoch start"),
        (99, "loop"),
    ],
)
def test_what_still_goes_on_has_the_part_of_its_phase(phase: Phase, part: str) -> None:
    trainer = LiveTrainer(spool(*steps(2), phase=phase))
    assert shares(trainer, 20_000) == {part: 1}
    row = trainer.row(at(20_000), [])
    assert row.phase_s == pytest.approx(19.81)


@pytest.mark.parametrize(
    ("rows", "expected_ms"),
    [
        ([event(Kind.SOURCE_START, 10, 60)], {"loop": 10, "epoch start": 50}),
        ([event(Kind.PAUSE, 10, 110)], {"loop": 10, "checkpoint": 100}),
        ([event(Kind.PAUSE, 10, 110, pause_kind=1)], {"loop": 10, "validation": 100}),
        ([event(Kind.PAUSE, 10, 110, pause_kind=99)], {"loop": 110}),
        ([event(Kind.WAIT, 10, 110)], {"loop": 10, "input": 100}),
        ([event(Kind.WAIT, 10, 110, position=0)], {"loop": 10, "epoch start": 100}),
        ([event(Kind.WAIT, 10, 110, flags=3)], {"loop": 10, "epoch start": 100}),
        # With no batch since the optimizer, what comes before a backward was a forward.
        ([event(Kind.BACKWARD, 10, 110)], {"compute": 110}),
        # What comes before the optimizer is the optimizer's, before anything else the loop's.
        ([event(Kind.BACKWARD, 0, 40), event(Kind.STEP, 60, 100)], {"compute": 100}),
        (
            [event(Kind.BACKWARD, 0, 50), event(Kind.PAUSE, 100, 200)],
            {"compute": 50, "loop": 50, "checkpoint": 100},
        ),
        # A backward inside an optimizer step (a closure) is written first and counted once.
        ([event(Kind.BACKWARD, 20, 50), event(Kind.STEP, 10, 60)], {"compute": 60}),
    ],
)
def test_gaps_have_the_part_that_their_ends_tell(
    rows: list[LiveEvent], expected_ms: dict[str, float]
) -> None:
    first = event(Kind.STEP, -1, 0)
    trainer = LiveTrainer(spool(first, *rows, phase=Phase.OUTSIDE))
    whole_ms = sum(expected_ms.values()) + 1
    expected_ms = {**expected_ms, "compute": expected_ms.get("compute", 0) + 1}
    assert shares(trainer, whole_ms - 1) == {
        part: ms / whole_ms for part, ms in expected_ms.items()
    }


def test_a_batch_without_gradients_is_validation() -> None:
    rows = [event(Kind.STEP, 0, 10), event(Kind.WAIT, 10, 60, owner=2, flags=0)]
    rows += [
        event(Kind.WAIT, 90, 110, owner=2, flags=0),
        event(Kind.SOURCE_START, 110, 120, owner=2),
    ]
    trainer = LiveTrainer(spool(*rows, phase=Phase.EVAL))
    assert shares(trainer, 120) == {"compute": 10 / 120, "validation": 110 / 120}


def test_a_batch_without_gradients_that_is_learned_from_is_input() -> None:
    rows = [event(Kind.STEP, 0, 10), event(Kind.WAIT, 10, 60, flags=0)]
    rows += [event(Kind.BACKWARD, 70, 90), event(Kind.STEP, 90, 110)]
    trainer = LiveTrainer(spool(*rows))
    assert shares(trainer, 110) == {"compute": 60 / 110, "input": 50 / 110}


def test_inference_waits_and_computes_and_its_batches_are_its_steps() -> None:
    rows = [
        event(Kind.WAIT, number * 100, number * 100 + 30, flags=0, position=number)
        for number in range(1, 21)
    ]
    row = LiveTrainer(spool(*rows, phase=Phase.EVAL)).row(at(2100), [])
    assert (row.step_kind, row.steps, row.phase) == ("batch", 20, "compute")
    assert row.steps_per_s == pytest.approx(10)
    assert row.frac("input") == pytest.approx(0.3)


def test_steps_are_those_of_the_optimizer_that_leads() -> None:
    """Two optimizers take turns: a step ends with the second; one that steps rarely never leads."""
    rows = []
    for number in range(40):
        start = number * 100
        rows += [event(Kind.STEP, start, start + 10, owner=1)]
        rows += [event(Kind.STEP, start + 50, start + 60, owner=2)]
        rows += [event(Kind.STEP, start + 70, start + 71, owner=3)] if number % 10 == 0 else []
    row = LiveTrainer(spool(*rows)).row(at(4000), [])
    assert (row.steps, row.step_kind) == (40, "train")
    assert row.step_mean_s == pytest.approx(0.1)


def test_steps_before_we_came_are_counted_in_when_all_are_known() -> None:
    trainer = LiveTrainer(spool(*steps(5), is_counted=False, past_steps={1: 70}))
    assert trainer.row(at(500), []).steps is None
    trainer.add(spool(past_steps={1: 30}))
    assert trainer.row(at(500), []).steps == 105


def test_a_job_in_a_long_validation_is_still_counted_in_steps() -> None:
    trainer = LiveTrainer(spool(event(Kind.WAIT, 0, 1, flags=0), past_steps={1: 70}))
    row = trainer.row(at(10), [])
    assert (row.steps, row.step_kind, row.steps_per_s) == (70, "train", None)


def test_pace_and_spread_of_steps() -> None:
    ends = [0, 100, 200, 300, 400, 900]
    rows = [event(Kind.STEP, end - 1, end) for end in ends]
    row = LiveTrainer(spool(*rows)).row(at(900), [])
    assert row.steps_per_s == pytest.approx(5 / 0.9)
    assert row.step_mean_s == pytest.approx(0.18)
    assert row.step_p95_s == pytest.approx(0.42)  # between the fourth and the fifth of five


def test_the_pace_falls_when_a_step_is_overdue() -> None:
    trainer = LiveTrainer(spool(*steps(11)))
    assert trainer.row(at(1150), []).steps_per_s == pytest.approx(10)
    assert trainer.row(at(1090 + 9100), []).steps_per_s == pytest.approx(1)


def test_slow_steps_have_a_pace_too() -> None:
    row = LiveTrainer(spool(*steps(4, length_ms=30_000))).row(at(120_000), [])
    assert row.steps_per_s == pytest.approx(1 / 30)


def test_samples_per_second_leave_unknown_sizes_out() -> None:
    rows = [event(Kind.WAIT, 100 * n, 100 * n + 50, samples=-1 if n % 2 else 64) for n in range(20)]
    row = LiveTrainer(spool(*rows)).row(at(2000), [])
    assert row.samples_per_s == pytest.approx(10 * 64 / 2)


def test_one_step_has_no_pace_yet() -> None:
    row = LiveTrainer(spool(event(Kind.STEP, 0, 1))).row(at(1), [])
    assert (row.steps, row.steps_per_s, row.step_mean_s, row.step_p95_s) == (1, None, None, None)


def test_batches_of_another_thread_hide_the_waiting() -> None:
    rows = [event(Kind.WAIT, 0, 50, tid=99), event(Kind.STEP, 60, 70)]
    trainer = LiveTrainer(spool(*rows))
    assert trainer.hides_waiting
    row = trainer.row(at(100), [])
    assert row.shares == []
    assert row.frac("input") is None
    trainer.add(spool(event(Kind.WAIT, 70, 80, tid=PID)))
    assert not trainer.hides_waiting


def test_a_process_that_has_ended_keeps_its_last_seconds() -> None:
    rows = steps(20)
    row = LiveTrainer(spool(*rows, is_alive=False)).row(at(10**7), [])
    assert (row.phase, row.phase_s) == ("ended", None)
    assert row.steps_per_s == pytest.approx(10)
    assert row.frac("input") == pytest.approx(0.4, abs=0.01)


def test_a_process_that_is_recorded_no_more_shows_no_shares() -> None:
    row = LiveTrainer(spool(*steps(20), stopped_errno=28)).row(at(2000), [])
    assert (row.phase, row.shares, row.steps_per_s) == ("not recorded", [], None)


def test_a_rank_that_was_told_once_stays() -> None:
    trainer = LiveTrainer(spool(rank=3))
    trainer.add(spool())
    row = trainer.row(at(0), [])
    assert (row.rank, row.shares, row.phase_s) == (3, [], None)


def test_collectives_are_cut_out_of_what_they_lie_in() -> None:
    """One inside backward, one across its end, one in the gap before the next batch."""
    rows = [
        event(Kind.WAIT, 0, 10),
        event(Kind.COLLECTIVE, 30, 50),
        event(Kind.COLLECTIVE_WAIT, 90, 110),
        event(Kind.BACKWARD, 20, 100),
        event(Kind.STEP, 120, 130),
        event(Kind.COLLECTIVE, 140, 160),
        event(Kind.COLLECTIVE, 140, 150, tid=99),
        event(Kind.WAIT, 180, 200),
    ]
    found = shares(LiveTrainer(spool(*rows, phase=Phase.COMPUTE)), 200)
    assert found == {
        "input": 30 / 200,
        "collectives": 60 / 200,
        "compute": 80 / 200,
        "loop": 30 / 200,
    }


def test_a_collective_of_time_that_is_counted_already_counts_no_more() -> None:
    rows = [
        event(Kind.WAIT, 0, 40),
        event(Kind.BACKWARD, 40, 90),
        event(Kind.COLLECTIVE, 50, 60),  # written late
        event(Kind.STEP, 90, 100),
    ]
    found = shares(LiveTrainer(spool(*rows, phase=Phase.COMPUTE)), 100)
    assert found == {"input": 0.4, "compute": 0.6}


def test_events_that_take_no_time_of_the_thread_leave_its_parts_as_they_are() -> None:
    rows = steps(30)
    collection = event(Kind.GC, 1500, 1510)
    trainer = LiveTrainer(spool(*rows, collection))
    assert trainer.row(at(3000), []) == LiveTrainer(spool(*rows)).row(at(3000), [])


def test_the_pace_is_that_of_the_last_ten_seconds() -> None:
    """Twenty slow steps of a second, then quick ones for more than ten seconds."""
    slow = [event(Kind.STEP, 1000 * number, 1000 * number + 900) for number in range(20)]
    quick = [event(Kind.STEP, 20_000 + 100 * n, 20_000 + 100 * n + 90) for n in range(150)]
    row = LiveTrainer(spool(*slow, *quick)).row(at(34_990), [])
    assert row.steps_per_s == pytest.approx(10, rel=0.02)
    assert row.steps == 170
