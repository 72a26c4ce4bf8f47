"""Segments cover the window without gap or overlap, and every gap gets the right name."""

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuelline.schema.parts import STEP_PARTS
from fuelline.schema.wire import PART_OF_PAUSE, Flag, Kind, PauseKind, StepKind
from fuelline.timeline.segments import StepSegments, cut_segments, find_span
from tests.unit.builders import (
    MS,
    START_NS,
    TRAINER,
    Lane,
    first_trainer,
    judge,
    make_timeline,
    spent_ms,
)

KINDS = [
    Kind.WAIT,
    Kind.SOURCE_START,
    Kind.COPY,
    Kind.BACKWARD,
    Kind.STEP,
    Kind.PAUSE,
    Kind.SYNC,
    Kind.GC,
    Kind.PIN,
    Kind.FETCH,
    Kind.COLLECTIVE,
]
EVENT = st.tuples(
    st.sampled_from(KINDS),
    st.integers(0, 300),  # start: small, so that events nest, overlap and touch
    st.integers(0, 60),  # duration
    st.integers(1, 2),  # loader or optimizer id
    st.sampled_from([Flag(0), Flag.TRAINING, Flag.END, Flag.ERROR]),
    st.integers(0, 2),  # position in the epoch
)


def check_cover(segments: StepSegments) -> None:
    """The pieces, in order, lie end to end from the window's first to its last nanosecond."""
    pieces = segments.pieces.sort("start_ns")
    assert pieces["start_ns"][0] == segments.start_ns
    assert pieces["end_ns"][-1] == segments.end_ns
    assert pieces["start_ns"][1:].to_list() == pieces["end_ns"][:-1].to_list()
    assert (pieces["end_ns"] - pieces["start_ns"]).sum() == segments.wall_ns
    assert (pieces["end_ns"] > pieces["start_ns"]).all()
    assert set(pieces["part"]) <= set(STEP_PARTS)


INSTANT = (Kind.WAIT, 0, 0, 1, Flag(0), 0)
NO_TIME = [INSTANT, INSTANT, INSTANT, (Kind.COLLECTIVE, 0, 0, 1, Flag(0), 0)]
ENDS_EARLY = [
    (Kind.WAIT, 0, 1, 1, Flag(0), 0),
    *[(Kind.STEP, 2, 0, 1, Flag(0), 0)] * 2,
    (Kind.COLLECTIVE, 0, 0, 1, Flag(0), 0),
]

ENDS_TOGETHER = [INSTANT, INSTANT, (Kind.COLLECTIVE, 0, 1, 1, Flag(0), 0)]


@example(NO_TIME)
@example(ENDS_EARLY)
@example(ENDS_TOGETHER)
@given(st.lists(EVENT, max_size=40))
def test_tiles_cover_the_window_whatever_the_events(events: list[tuple]) -> None:
    lane = Lane()
    for kind, start, dur, which, flags, position in events:
        lane.put(kind, START_NS + start, dur, which, 8, 0, 0, position, flags=flags)
    timeline = make_timeline(lane)
    trainer = first_trainer(timeline)
    segments = None if trainer is None else cut_segments(timeline, trainer)
    if segments is not None:
        check_cover(segments)
        assert segments.start_ns in segments.boundaries
        span = find_span(timeline, trainer)
        assert span is not None
        assert (span.start_ns, span.end_ns) == (segments.start_ns, segments.end_ns)
    elif trainer is not None:
        assert find_span(timeline, trainer) is None


def test_a_plain_step_has_its_parts_in_full() -> None:
    lane = Lane().step()
    for _ in range(3):
        lane.gap(2).step(wait=10, forward=7, backward=20, opt=5)
    _, segments = judge(make_timeline(lane))
    check_cover(segments)
    assert spent_ms(segments) == {
        "loop": 6,
        "input": 30,
        "forward": 21,
        "backward": 60,
        "optimizer": 15,
    }


def test_the_window_starts_at_the_end_of_the_first_step() -> None:
    lane = Lane().gap(5000).step(wait=3000, opt=5)
    first_end = lane.now_ns
    lane.step().step()
    _, segments = judge(make_timeline(lane))
    assert (segments.start_ns, segments.end_ns) == (first_end, lane.now_ns)
    assert segments.boundaries.len() == 3


def test_an_event_across_the_start_of_the_window_counts_from_there() -> None:
    lane = Lane().step(opt=5)
    # A scheduler's own step, recorded as one outer event around the second optimizer's.
    lane.put(Kind.SYNC, lane.now_ns - 2 * MS, 10 * MS)
    lane.gap(8).step().step()
    _, segments = judge(make_timeline(lane))
    check_cover(segments)
    assert spent_ms(segments)["sync"] == 8


def test_the_window_does_not_end_before_its_last_step() -> None:
    """A mark at the end of a step has no length, and vanishes where collectives are cut out."""
    lane = Lane().step(opt=0)
    lane.add(Kind.COLLECTIVE, 0.002, 1, 8, 1, 0, 2).gap(13_000).optimizer(0)
    trainer, segments = judge(timeline := make_timeline(lane))
    assert segments.end_ns == segments.boundaries[-1] == lane.now_ns
    check_cover(segments)
    span = find_span(timeline, trainer)
    assert span is not None
    assert span.end_ns == segments.end_ns


def test_one_step_is_not_enough_for_a_window() -> None:
    timeline = make_timeline(Lane().step())
    trainer = first_trainer(timeline)
    assert trainer is not None
    assert cut_segments(timeline, trainer) is None
    assert find_span(timeline, trainer) is None


def test_the_window_alone_is_that_of_the_segments() -> None:
    trainer, segments = judge(timeline := make_timeline(Lane().step().gap(2).step().step()))
    span = find_span(timeline, trainer)
    assert span is not None
    assert (span.start_ns, span.end_ns) == (segments.start_ns, segments.end_ns)
    assert span.boundaries.to_list() == segments.boundaries.to_list()


def test_segments_on_another_clock_are_as_long_as_before() -> None:
    _, segments = judge(make_timeline(Lane().step().gap(2).step().step()))
    moved = segments.shifted(7)
    check_cover(moved)
    assert (moved.start_ns, moved.end_ns) == (segments.start_ns + 7, segments.end_ns + 7)
    assert moved.boundaries.to_list() == (segments.boundaries + 7).to_list()
    assert spent_ms(moved) == spent_ms(segments)


def test_clipping_between_backward_and_optimizer_belongs_to_the_optimizer() -> None:
    lane = Lane().step()
    lane.batch(10).gap(5).backward(20).gap(3).optimizer(5)
    _, segments = judge(make_timeline(lane))
    assert spent_ms(segments)["optimizer"] == 8


def test_gradient_accumulation_counts_every_forward_and_one_step() -> None:
    lane = Lane().step()
    for _ in range(4):
        lane.batch(10).gap(6).backward(20)
    lane.optimizer(5)
    _, segments = judge(make_timeline(lane))
    check_cover(segments)
    spent = spent_ms(segments)
    assert segments.boundaries.len() == 2
    assert (spent["forward"], spent["backward"], spent["input"]) == (24, 80, 40)


def test_gaps_between_backward_and_the_next_batch_are_the_loop() -> None:
    lane = Lane().step()
    lane.batch(10).gap(6).backward(20).gap(9).batch(10).gap(6).backward(20).optimizer(5)
    _, segments = judge(make_timeline(lane))
    assert spent_ms(segments)["loop"] == 9


def test_a_gan_has_one_step_a_batch_and_both_forward_passes() -> None:
    lane = Lane()
    for _ in range(4):
        lane.batch(10)
        lane.gap(6).backward(20).optimizer(5, which=1)  # discriminator
        lane.gap(7).backward(20).optimizer(5, which=2)  # generator, same batch
    _, segments = judge(make_timeline(lane))
    check_cover(segments)
    spent = spent_ms(segments)
    assert segments.boundaries.len() == 4
    assert segments.start_ns == START_NS + 73 * MS
    assert spent["forward"] == 3 * (6 + 7)
    assert "loop" not in spent


def test_an_optimizer_that_steps_rarely_does_not_set_the_steps() -> None:
    lane = Lane()
    for step in range(6):
        lane.step()
        if step % 3 == 2:
            lane.gap(1).optimizer(5, which=2)
    _, segments = judge(make_timeline(lane))
    assert segments.boundaries.len() == 6


def test_a_loader_that_serves_training_and_validation_is_told_apart_by_gradients() -> None:
    lane = Lane().step().step().epoch_end(4)
    for _ in range(3):
        lane.batch(8, grad=False).gap(12)
    lane.epoch_end(2, grad=False)
    lane.step(wait=25).step()
    _, segments = judge(make_timeline(lane))
    check_cover(segments)
    assert spent_ms(segments)["validation"] == 3 * 20 + 2


def test_validation_between_epochs_is_one_part_with_its_loader() -> None:
    lane = Lane().iterator(50).step().step().epoch_end(4)
    lane.gap(1)
    lane.iterator(30, loader=2)
    for _ in range(3):
        lane.batch(8, loader=2, grad=False).gap(12)
    lane.epoch_end(2, loader=2).gap(3)
    lane.iterator(40).step(wait=25).step()
    _, segments = judge(make_timeline(lane))
    check_cover(segments)
    spent = spent_ms(segments)
    assert spent["validation"] == 30 + 3 * 20 + 2
    assert spent["epoch start"] == 4 + 40 + 25
    assert spent["loop"] == 1 + 3
    assert spent["input"] == 2 * 10


def test_stop_iteration_ends_the_epoch_and_leaves_the_loop() -> None:
    lane = Lane().step().step().epoch_end(4).gap(100).iterator(10).step().step()
    _, segments = judge(make_timeline(lane))
    spent = spent_ms(segments)
    assert spent["loop"] == 100
    assert spent["epoch start"] == 4 + 10 + 10


def test_inference_without_an_optimizer_has_a_step_a_batch() -> None:
    lane = Lane().iterator(50)
    for _ in range(5):
        lane.batch(10, grad=False).gap(30)
    lane.epoch_end(1)
    trainer, segments = judge(make_timeline(lane))
    check_cover(segments)
    assert trainer.step_kind == "batch"
    assert segments.boundaries.len() == 5
    assert spent_ms(segments) == {"input": 40, "forward": 150, "epoch start": 1}


def test_a_loader_read_by_another_thread_is_no_tile_of_the_trainer() -> None:
    lane, reader = Lane(), Lane(tid=TRAINER + 1)
    for _ in range(5):
        lane.gap(12).backward(20).optimizer(5)
        reader.batch(30)
    trainer, segments = judge(make_timeline(lane, reader))
    check_cover(segments)
    assert (trainer.tid, trainer.reader_tid) == (TRAINER, TRAINER + 1)
    assert spent_ms(segments) == {"forward": 48, "backward": 80, "optimizer": 20}


def test_garbage_collection_inside_backward_is_counted_once() -> None:
    lane = Lane().step()
    lane.batch(10).gap(5)
    lane.put(Kind.GC, lane.now_ns + 3 * MS, 4 * MS, 2, 100)
    lane.backward(20).optimizer(5)
    _, segments = judge(make_timeline(lane))
    check_cover(segments)
    spent = spent_ms(segments)
    assert spent["backward"] == 20
    assert "garbage collection" not in spent


def test_garbage_collection_between_steps_is_a_part_of_its_own() -> None:
    lane = Lane().step().gap(2).add(Kind.GC, 30, 2, 100).gap(1).step()
    _, segments = judge(make_timeline(lane))
    spent = spent_ms(segments)
    assert (spent["garbage collection"], spent["loop"]) == (30, 3)


def test_the_collection_when_the_interpreter_ends_is_no_part_of_training() -> None:
    lane = Lane().step().step().step()
    _, before = judge(make_timeline(lane))
    _, after = judge(make_timeline(lane.gap(20).add(Kind.GC, 400, 2, 100)))
    assert after.end_ns == before.end_ns


def test_a_checkpoint_and_its_copies_are_one_tile() -> None:
    lane = Lane().step().gap(1)
    lane.put(Kind.SYNC, lane.now_ns + 5 * MS, 10 * MS)
    lane.add(Kind.PAUSE, 200, 10**6).gap(2).step()
    _, segments = judge(make_timeline(lane))
    spent = spent_ms(segments)
    assert (spent["checkpoint"], spent["loop"]) == (200, 3)
    assert "sync" not in spent


@pytest.mark.parametrize(
    ("pause_kind", "part"),
    [
        (PauseKind.CHECKPOINT, "checkpoint"),
        (PauseKind.VALIDATION, "validation"),
        (99, "unexplained"),
        (300, "unexplained"),
    ],
)
def test_a_pause_is_called_by_its_kind_and_one_that_nobody_knows_is_no_checkpoint(
    pause_kind: int, part: str
) -> None:
    lane = Lane().step().gap(1).add(Kind.PAUSE, 200, -1, 0, int(pause_kind)).gap(2).step()
    _, segments = judge(make_timeline(lane))
    spent = spent_ms(segments)
    assert (spent[part], spent["loop"]) == (200, 3)
    assert {"checkpoint", "validation", "unexplained"} & set(spent) == {part}


def test_every_kind_of_pause_has_its_part() -> None:
    assert set(PART_OF_PAUSE) == set(PauseKind)


def test_a_copy_between_batch_and_forward_is_transfer() -> None:
    lane = Lane().step().batch(10).gap(1).add(Kind.COPY, 4, 10**6).gap(9).backward(20).optimizer(5)
    _, segments = judge(make_timeline(lane))
    spent = spent_ms(segments)
    assert (spent["transfer"], spent["forward"]) == (4, 10)


def test_the_backward_of_a_closure_inside_the_optimizer_ends_the_forward_and_begins_the_step() -> (
    None
):
    lane = Lane().batch(10)
    for _ in range(3):
        lane.put(Kind.BACKWARD, lane.now_ns + 6 * MS, 10 * MS)
        lane.optimizer(40).batch(10)
    _, segments = judge(make_timeline(lane))
    check_cover(segments)
    spent = spent_ms(segments)
    assert (spent["forward"], spent["backward"], spent["optimizer"]) == (12, 20, 48)


def test_a_batch_that_a_closure_takes_is_waited_for() -> None:
    lane = Lane().step()
    for position in (1, 2):
        lane.put(Kind.WAIT, lane.now_ns, 7 * MS, 1, 32, 0, 0, position, flags=Flag.TRAINING)
        lane.put(Kind.BACKWARD, lane.now_ns + 10 * MS, 10 * MS)
        lane.optimizer(25)
    _, segments = judge(make_timeline(lane))
    check_cover(segments)
    spent = spent_ms(segments)
    assert (spent["input"], spent["forward"], spent["optimizer"]) == (14, 6, 10)


def test_a_closure_that_runs_several_times_has_a_forward_before_each_backward() -> None:
    lane = Lane().step().batch(10)
    for start_ms in (5, 20):
        lane.put(Kind.BACKWARD, lane.now_ns + start_ms * MS, 10 * MS)
    lane.optimizer(40)
    _, segments = judge(make_timeline(lane))
    check_cover(segments)
    spent = spent_ms(segments)
    assert (spent["forward"], spent["backward"], spent["optimizer"]) == (10, 20, 10)


def test_what_is_collected_after_the_last_event_is_not_part_of_the_training() -> None:
    lane = Lane().step().step().gap(500).add(Kind.GC, 300, 2, 100)
    _, segments = judge(make_timeline(lane))
    check_cover(segments)
    assert segments.wall_ns == 45 * MS


def test_batches_that_a_resumed_epoch_skips_belong_to_its_start() -> None:
    lane = Lane().step().step().step().epoch_end(1).iterator(2)
    for _ in range(50):
        lane.batch(4)
    lane.step().step()
    _, segments = judge(make_timeline(lane))
    spent = spent_ms(segments)
    # The first batch of the epoch is one of the fifty; those of five steps are waited for, less
    # that of the first step, which is before the window.
    assert (spent["input"], spent["epoch start"]) == (40, 1 + 2 + 50 * 4)


def test_a_wrapper_that_fetches_one_batch_ahead_waits_for_each_batch_once() -> None:
    lane = Lane()
    for _ in range(2):
        lane.iterator(2).batch(30)
        for _ in range(3):
            lane.batch(10).gap(10).backward(20).optimizer(5)
        lane.epoch_end(1).gap(10).backward(20).optimizer(5)
    _, segments = judge(make_timeline(lane))
    check_cover(segments)
    spent = spent_ms(segments)
    assert segments.boundaries.len() == 8
    assert (spent["input"], spent["epoch start"]) == (50, 1 + 2 + 30 + 1)
    assert (spent["forward"], spent["backward"]) == (70, 140)


def test_several_batches_taken_before_several_backwards_are_all_waited_for() -> None:
    lane = Lane().iterator(2).batch(30)
    for _ in range(3):
        for _ in range(2):
            lane.batch(10)
        lane.gap(10).backward(20).gap(10).backward(20).optimizer(5)
    _, segments = judge(make_timeline(lane))
    check_cover(segments)
    spent = spent_ms(segments)
    assert segments.boundaries.len() == 3
    assert (spent["input"], spent["forward"], spent["backward"]) == (40, 40, 80)


def test_the_gap_between_an_iterator_and_its_first_batch_belongs_to_the_epochs_start() -> None:
    lane = Lane().step().batch(5, loader=2, grad=False).gap(5)
    lane.iterator(2).gap(8).step()
    _, segments = judge(make_timeline(lane))
    spent = spent_ms(segments)
    assert (spent["validation"], spent["epoch start"]) == (10, 2 + 8 + 10)


def test_every_tile_knows_the_step_it_starts_in() -> None:
    lane = Lane().step()
    for _ in range(3):
        lane.step(wait=10, forward=10, backward=20, opt=5)
    _, segments = judge(make_timeline(lane))
    by_step = segments.pieces.group_by("step").agg(
        (pl.col("end_ns") - pl.col("start_ns")).sum() / MS
    )
    assert dict(by_step.iter_rows()) == {0: 45, 1: 45, 2: 45}


@pytest.mark.parametrize("flag", [Flag.END, Flag.ERROR])
def test_a_batch_that_never_came_is_no_step_boundary(flag: Flag) -> None:
    lane = Lane().batch(10, grad=False).gap(5).batch(10, grad=False).gap(5)
    lane.add(Kind.WAIT, 3, 1, 0, 0, 0, 2, flags=flag)
    _, segments = judge(make_timeline(lane))
    assert segments.boundaries.len() == 2


def test_an_optimizer_that_is_called_for_each_group_of_weights_steps_once() -> None:
    """As DeepSpeed's ZeRO does."""
    lane = Lane()
    for _ in range(5):
        lane.batch(2).gap(5).backward(10)
        for _ in range(3):
            lane.gap(1).optimizer(1)
        lane.gap(1)
    segments = cut_segments(make_timeline(lane), first_trainer(make_timeline(lane)))
    assert segments is not None
    assert segments.boundaries.len() == 5
    assert (segments.boundaries.diff().drop_nulls() == 24 * MS).all()


def test_replays_of_a_graph_are_steps_where_nothing_else_steps() -> None:
    lane = Lane()
    for _ in range(5):
        lane.batch(2).gap(1).add(Kind.STEP, 0, 1, StepKind.REPLAY).gap(7)
    timeline = make_timeline(lane)
    segments = cut_segments(timeline, first_trainer(timeline))
    assert segments is not None
    assert segments.boundaries.len() == 5


def test_an_optimizer_that_warms_up_for_a_capture_leaves_the_steps_to_the_graph() -> None:
    lane = Lane()
    for _ in range(4):
        lane.batch(2).gap(5).backward(10).optimizer(1).gap(1)
    for _ in range(50):
        lane.batch(2).gap(1).add(Kind.STEP, 0, 1, StepKind.REPLAY).gap(7)
    timeline = make_timeline(lane)
    segments = cut_segments(timeline, first_trainer(timeline))
    assert segments is not None
    assert segments.boundaries.len() == 54


def test_replays_beside_an_optimizer_are_parts_of_its_step() -> None:
    lane = Lane()
    for _ in range(5):
        lane.batch(2).add(Kind.STEP, 0, 1, StepKind.REPLAY).gap(1).backward(5)
        lane.add(Kind.STEP, 0, 2, StepKind.REPLAY).gap(1).optimizer(1).gap(1)
    timeline = make_timeline(lane)
    segments = cut_segments(timeline, first_trainer(timeline))
    assert segments is not None
    assert segments.boundaries.len() == 5
