from pathlib import Path

import polars as pl
import pytest

from fuelline.ingest.recording.spool import read_spool
from fuelline.record.attach.estimate import (
    Activity,
    PartSpan,
    StepWriter,
    clip,
    close_gaps,
    with_epoch_starts,
)
from fuelline.record.attach.frames import (
    StackFrame,
    find_part,
    find_validation,
    parse_frame,
)
from fuelline.record.attach.pieces import StackPiece, read_piece
from fuelline.record.attach.spools import EstimatedSpool
from fuelline.schema.wire import Kind

S = 1_000_000_000
TORCH = "/usr/lib/python3/site-packages/torch"


def stack(*frames: str) -> tuple[StackFrame, ...]:
    return tuple(parse_frame(each) for each in frames)


LOOP = "main (/home/me/train.py:31)"
NEXT = f"_BaseDataLoaderIter.__next__ ({TORCH}/utils/data/dataloader.py:701)"
CALL = f"Module._call_impl ({TORCH}/nn/modules/module.py:1500)"


@pytest.mark.parametrize(
    ("frames", "part"),
    [
        ((LOOP, NEXT), "input"),
        ((LOOP, f"__next__ ({TORCH}/utils/data/dataloader.py:701)"), "input"),
        ((LOOP, NEXT, f"_shutdown_workers ({TORCH}/utils/data/dataloader.py:1)"), "epoch start"),
        ((LOOP, NEXT, "NpzFile.__del__ (/venv/site-packages/numpy/lib/_npyio_impl.py:9)"), "input"),
        ((LOOP, f"__iter__ ({TORCH}/utils/data/dataloader.py:400)"), "epoch start"),
        ((LOOP, CALL), "forward"),
        ((LOOP, f"Tensor.backward ({TORCH}/_tensor.py:500)"), "backward"),
        ((LOOP, f"SGD.step ({TORCH}/optim/sgd.py:100)"), "optimizer"),
        ((LOOP, f"SGD.step ({TORCH}/optim/sgd.py:100)", CALL), "forward"),
        ((LOOP, f"save ({TORCH}/serialization.py:100)"), "checkpoint"),
        ((LOOP, f"all_reduce ({TORCH}/distributed/distributed_c10d.py:100)"), "collectives"),
        ((LOOP, f"synchronize ({TORCH}/cuda/__init__.py:100)"), "sync"),
        ((LOOP, "Queue.get (/usr/lib/python3.11/queue.py:171)"), "queue"),
        ((LOOP, NEXT, "Queue.get (/usr/lib/python3.11/queue.py:171)"), "input"),
        ((LOOP,), "loop"),
    ],
)
def test_library_frames_name_the_part(frames: tuple[str, ...], part: str) -> None:
    assert find_part(stack(*frames), {}) == part


def test_the_text_of_the_innermost_line_tells_reading_a_value_and_copying() -> None:
    place = ("/home/me/train.py", 31)
    assert find_part(stack(LOOP), {place: "total += loss.item()"}) == "sync"
    assert find_part(stack(LOOP), {place: "x = x.to(device)"}) == "transfer"


def test_a_function_that_takes_batches_and_never_learns_validates() -> None:
    evaluate = "evaluate (/home/me/train.py:10)"
    samples = [
        (stack(LOOP, NEXT), "input", 9),
        (stack(LOOP, CALL), "forward", 9),
        (stack(LOOP, f"backward ({TORCH}/_tensor.py:5)"), "backward", 9),
        (stack(LOOP, evaluate, NEXT), "input", 9),
        (stack(LOOP, evaluate, CALL), "forward", 9),
    ]
    assert find_validation(samples) == {("evaluate", "/home/me/train.py")}
    assert find_validation(samples[3:]) == frozenset()  # nothing learns: the job is an evaluation


def test_stacks_that_were_read_while_they_changed_make_nothing_a_validation() -> None:
    inner = "Net.forward (/home/me/net.py:7)"
    step = "training_step (/home/me/train.py:50)"
    samples = [
        (stack(LOOP, NEXT), "input", 9),
        (stack(LOOP, step, CALL, inner), "forward", 900),
        (stack(LOOP, f"backward ({TORCH}/_tensor.py:5)"), "backward", 9),
        (stack(LOOP, NEXT, inner), "input", 1),  # the model below `next`
        (stack(LOOP, step, NEXT), "input", 1),  # `next` where the model is called
    ]
    assert find_validation(samples) == frozenset()


def test_a_generator_around_the_loader_does_not_validate() -> None:
    batches = "batches (/home/me/train.py:10)"
    samples = [
        (stack(LOOP, batches, NEXT), "input", 9),
        (stack(LOOP, CALL), "forward", 9),
        (stack(LOOP, f"backward ({TORCH}/_tensor.py:5)"), "backward", 9),
    ]
    assert find_validation(samples) == frozenset()


def test_gaps_between_samples_belong_to_what_was_seen_last() -> None:
    spans = [PartSpan(10, 20, "input"), PartSpan(30, 40, "forward")]
    assert close_gaps(spans, 0) == [PartSpan(0, 30, "input"), PartSpan(30, 40, "forward")]
    assert clip(spans, 15, 35) == [PartSpan(15, 20, "input"), PartSpan(30, 35, "forward")]


def test_the_first_wait_of_an_epoch_is_part_of_its_start() -> None:
    parts = ["epoch start", "input", "forward", "input"]
    spans = [PartSpan(at, at + 1, part) for at, part in enumerate(parts)]
    assert [each.part for each in with_epoch_starts(spans)] == [
        "epoch start", "epoch start", "forward", "input",
    ]  # fmt: skip


def test_the_first_wait_lasts_no_longer_than_a_batch_takes() -> None:
    spans = [PartSpan(0, 10, "epoch start"), PartSpan(10, 500, "input"), PartSpan(500, 510, "loop")]
    assert with_epoch_starts(spans, 40) == [
        PartSpan(0, 10, "epoch start"),
        PartSpan(10, 50, "epoch start"),
        PartSpan(50, 500, "input"),
        PartSpan(500, 510, "loop"),
    ]


def test_the_clock_of_the_thread_corrects_a_sampler_that_saw_too_much_waiting() -> None:
    activity = Activity()
    for _ in range(500):
        activity.add("input", is_running=False)
        activity.add("backward", is_running=True)
    spans = [PartSpan(0, 80, "input"), PartSpan(80, 100, "backward")]
    found = activity.correct(spans, 100, 50)
    assert found["input"] == pytest.approx(50, abs=1)
    assert found["backward"] == pytest.approx(50, abs=1)


def test_without_a_clock_samples_count_as_they_are() -> None:
    spans = [PartSpan(0, 80, "input"), PartSpan(80, 100, "backward")]
    assert Activity().correct(spans, 100, -1) == {"input": 80, "backward": 20}


def write(tmp_path: Path, spans: list[PartSpan], steps: int) -> pl.DataFrame:
    spool = EstimatedSpool(tmp_path, 7, 1, 7)
    writer = StepWriter(spool, 7)
    writer.notice(("input", "backward"))
    end_ns = spans[-1].end_ns
    spent = Activity().correct(spans, end_ns - spans[0].start_ns, -1)
    writer.lay(spans, spent, spans[0].start_ns, end_ns, steps)
    spool.close()
    (path,) = tmp_path.glob("*.spool")
    content = read_spool(path)
    assert content is not None
    assert content.damaged == 0
    return content.events


def test_steps_fill_their_stretch_with_the_shares_that_were_seen(tmp_path: Path) -> None:
    spans = [PartSpan(S, 2 * S, "input"), PartSpan(2 * S, 5 * S, "backward")]
    events = write(tmp_path, spans, 10)
    waits = events.filter(pl.col("kind") == Kind.WAIT)
    assert waits.height == 10
    assert waits["dur_ns"].sum() == pytest.approx(S, rel=1e-6)
    assert events.filter(pl.col("kind") == Kind.BACKWARD)["dur_ns"].sum() == pytest.approx(3 * S)
    ends = events.select(pl.col("start_ns") + pl.col("dur_ns")).to_series()
    assert ends.max() <= 5 * S  # type: ignore[operator]


def test_a_pause_keeps_its_length_and_lies_between_steps(tmp_path: Path) -> None:
    spans = [
        PartSpan(1 * S, 3 * S, "forward"),
        PartSpan(3 * S, 4 * S, "checkpoint"),
        PartSpan(4 * S, 5 * S, "optimizer"),
    ]
    events = write(tmp_path, spans, 3)
    (pause,) = events.filter(pl.col("kind") == Kind.PAUSE).iter_rows(named=True)
    assert pause["dur_ns"] == S
    assert pause["start_ns"] == pytest.approx(3 * S, rel=0.01)
    assert events.filter(pl.col("kind") == Kind.STEP).height == 3


def test_stacks_are_followed_through_their_changes() -> None:
    def event(kind: str, name: str, at_us: int, file: str = "", line: int = 0) -> dict[str, object]:
        args = {"filename": file, "line": line}
        return {"ph": kind, "name": name, "tid": 99, "ts": at_us, "args": args}

    piece = StackPiece(7, 1_000_000, 0)
    thread = "thread (7): MainThread"
    read_piece(
        [
            event("B", thread, 0),
            event("B", "main", 0, "/a.py", 1),
            event("B", "work", 5, "/a.py", 2),
            event("E", "work", 9, "/a.py", 2),
            event("E", "main", 12, "/a.py", 1),
            event("E", thread, 12),
        ],
        piece,
    )
    assert [(each.end_ns - each.start_ns, len(each.stack)) for each in piece.threads[7]] == [
        (5000, 1), (4000, 2), (3000, 1),
    ]  # fmt: skip
    assert piece.names == {7: "MainThread"}
