"""Who trains, what feeds it, and who only helps."""

import pytest

from fuelline.schema.wire import Kind
from fuelline.timeline.tables import TABLES, empty_table
from fuelline.timeline.timeline import Timeline
from fuelline.timeline.trainer import Trainer
from tests.unit.builders import RUN, TRAINER, Lane, first_trainer, make_timeline, table


def trainer_of(*lanes: Lane) -> Trainer:
    found = first_trainer(make_timeline(*lanes))
    assert found is not None
    return found


def steps(count: int, pid: int = TRAINER) -> Lane:
    lane = Lane(pid)
    for _ in range(count):
        lane.step()
    return lane


def test_nothing_recorded_means_no_trainer() -> None:
    assert first_trainer(make_timeline()) is None


def test_a_process_that_only_saves_is_no_trainer() -> None:
    assert first_trainer(make_timeline(Lane().add(Kind.PAUSE, 5).add(Kind.GC, 3))) is None


def test_the_process_with_the_most_steps_is_the_trainer() -> None:
    found = trainer_of(steps(3, pid=10), steps(8, pid=20), steps(5, pid=30))
    assert (found.pid, found.step_kind) == (20, "train")


def test_equal_ranks_give_the_lowest_pid_every_time() -> None:
    assert trainer_of(steps(4, pid=30), steps(4, pid=20)).pid == 20


def test_steps_win_over_any_number_of_batches() -> None:
    evaluator = Lane(pid=10)
    for _ in range(50):
        evaluator.batch(1, grad=False)
    assert trainer_of(evaluator, steps(2, pid=20)).pid == 20


def test_workers_are_never_taken_for_trainers() -> None:
    # A worker whose dataset trains a tokenizer of its own, more often than the trainer steps.
    trainer = steps(3).worker(200).worker(201, number=1)
    found = trainer_of(trainer, steps(50, pid=200), Lane(pid=201).fetch(5))
    assert found.pid == TRAINER
    assert found.worker_pids == (200, 201)


def test_workers_that_alone_left_events_are_no_trainers_either() -> None:
    lane = Lane().worker(200)
    assert first_trainer(make_timeline(lane, steps(5, pid=200))) is None


def test_workers_of_the_validation_loader_do_not_feed_the_steps() -> None:
    lane = steps(4).worker(200, loader=1).worker(300, loader=2)
    for _ in range(3):
        lane.batch(5, loader=2, grad=False)
    assert trainer_of(lane).worker_pids == (200,)


def test_train_and_validation_loaders_are_told_apart_by_what_follows_a_batch() -> None:
    lane = Lane()
    for _ in range(2):
        for _ in range(5):
            lane.step()
        lane.epoch_end(1)
        for _ in range(5):
            lane.batch(5, loader=2, grad=False).gap(5)
        lane.epoch_end(1, loader=2)
    assert trainer_of(lane).train_sources == (1,)


def test_two_loaders_that_feed_one_step_are_both_training_loaders() -> None:
    lane = Lane()
    for _ in range(6):
        lane.batch(5, loader=1).batch(5, loader=2).gap(5).backward(10).optimizer(2)
        lane.batch(5, loader=2).batch(5, loader=1).gap(5).backward(10).optimizer(2)
    assert trainer_of(lane).train_sources == (1, 2)


def test_accumulation_without_backward_in_between_still_counts_as_training() -> None:
    lane = Lane()
    for _ in range(3):
        for _ in range(8):
            lane.batch(5).gap(5)
        lane.backward(20).optimizer(5)
    assert trainer_of(lane).train_sources == (1,)


def test_without_an_optimizer_loaders_with_a_fair_share_of_batches_are_the_work() -> None:
    lane = Lane()
    for _ in range(50):
        lane.batch(5, loader=1, grad=False)
    for _ in range(20):
        lane.batch(5, loader=2, grad=False)
    lane.batch(5, loader=3, grad=False)
    found = trainer_of(lane)
    assert (found.step_kind, found.train_sources) == ("batch", (1, 2))


def test_steps_without_a_loader_have_no_training_loader() -> None:
    lane = Lane()
    for _ in range(3):
        lane.gap(5).backward(10).optimizer(5)
    found = trainer_of(lane)
    assert (found.train_sources, found.worker_pids, found.reader_tid) == ((), (), TRAINER)


def test_the_training_thread_is_the_one_that_steps_most() -> None:
    main, helper = Lane(tid=TRAINER), Lane(tid=7)
    for _ in range(3):
        main.step()
    helper.optimizer(1)
    assert trainer_of(main, helper).tid == TRAINER


def test_the_main_thread_reads_if_it_reads_at_all() -> None:
    main, other = Lane(), Lane(tid=7)
    main.step()
    main.step()
    for _ in range(9):
        other.batch(5)
    assert trainer_of(main, other).reader_tid == TRAINER


def test_an_absent_table_is_empty_and_has_its_columns() -> None:
    timeline = Timeline(run=RUN, tables={})
    for name in TABLES:
        assert timeline.table(name).schema == empty_table(name).schema
        assert timeline.table(name).height == 0


def test_check_refuses_a_table_with_other_columns() -> None:
    timeline = Timeline(run=RUN, tables={"events": empty_table("host")})
    with pytest.raises(ValueError, match="table events"):
        timeline.check()


def test_check_refuses_an_event_that_ends_before_it_starts() -> None:
    rows = [(1, 1, int(Kind.WAIT), 0, 100, -5, 0, 0, 0, 0, 0)]
    timeline = Timeline(run=RUN, tables={"events": table("events", rows)})
    with pytest.raises(ValueError, match="ends before"):
        timeline.check()


def test_two_loaders_that_are_always_taken_in_the_same_order_both_feed_the_steps() -> None:
    lane = Lane()
    for epoch in range(2):
        for _ in range(6):
            lane.batch(5, loader=1).batch(5, loader=2).gap(5).backward(10).optimizer(2)
        for _ in range(3):
            lane.batch(5, loader=3, grad=epoch == 1)
        lane.epoch_end(1, loader=3)
    assert trainer_of(lane).train_sources == (1, 2)


def test_evaluation_between_a_batch_and_learning_from_it_is_no_training() -> None:
    lane = Lane()
    for _ in range(6):
        lane.batch(5)
        for _ in range(3):
            lane.batch(5, loader=2).gap(5)
        lane.epoch_end(1, loader=2).gap(5).backward(10).optimizer(2)
    assert trainer_of(lane).train_sources == (1,)


def test_evaluation_without_gradients_that_is_broken_off_is_no_training() -> None:
    lane = Lane()
    for _ in range(6):
        lane.batch(5)
        for _ in range(3):
            lane.batch(5, loader=2, grad=False).gap(5)
        lane.gap(5).backward(10).optimizer(2)
    assert trainer_of(lane).train_sources == (1,)


def test_any_number_of_skipped_batches_leaves_a_loader_a_training_loader() -> None:
    lane = Lane()
    for _ in range(500):
        lane.batch(1)
    for _ in range(5):
        lane.step()
    assert trainer_of(lane).train_sources == (1,)


def test_a_loader_that_is_emptied_for_one_step_feeds_it() -> None:
    lane = Lane()
    for _ in range(4):
        for _ in range(3):
            lane.batch(5)
        lane.epoch_end(1).gap(5).backward(10).optimizer(2)
    assert trainer_of(lane).train_sources == (1,)
