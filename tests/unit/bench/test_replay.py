"""A made-up trace of a training on a GPU: what its replay records, and the truth beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from bench.replay.__main__ import main, replay
from bench.replay.events import read_job
from bench.replay.marks import put_marks, window_of
from bench.replay.recording import write_recording
from bench.replay.truth import find_truth

from fuelline.ingest import load_recording, load_trace
from fuelline.pipeline.imported import import_files
from fuelline.schema.wire import Flag, Kind, MarkPlace
from fuelline.timeline import Timeline, events

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.timeline.trace import Trace

TRAINER, AUTOGRAD, STEPS, STEP_US = 1, 2, 8, 100_000
NEXT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


class Story:
    """Events of a trace, in microseconds."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._number = 0

    def host(self, name: str, ts: float, dur: float, *, cat: str = "cpu_op", tid: int = 1) -> None:
        self._add(name, cat, tid, ts, dur)

    def launch(self, ts: float, begins: float, dur: float, *, tid: int = TRAINER) -> None:
        """A call of 5 us, and the kernel that it launches."""
        self._pair("cudaLaunchKernel", ts, 5, ("kernel", "product", begins, dur), tid)

    def copy(self, ts: float, call_us: float, begins: float, dur: float, *, kind: str) -> None:
        self._pair("cudaMemcpyAsync", ts, call_us, ("gpu_memcpy", kind, begins, dur), TRAINER)

    def _pair(self, call: str, ts: float, call_us: float, work: Any, tid: int) -> None:
        self._number += 1
        cat, name, begins, dur = work
        correlation = {"correlation": self._number}
        self._add(call, "cuda_runtime", tid, ts, call_us, correlation)
        self._add(name, cat, 7, begins, dur, {**correlation, "device": 0, "stream": 7})

    def _add(  # noqa: PLR0917 - the fields of an event
        self, name: str, cat: str, tid: int, ts: float, dur: float, args: Any = None
    ) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}
            | ({"args": args} if args else {})
        )


def tell(story: Story, at: float) -> None:
    """A step of 100 ms: the loader 30, a blocking copy 5; the device works for 45 of the rest."""
    story.host(NEXT, at, 30_000, cat="user_annotation")
    story.host("aten::to", at + 30_100, 5_200)
    story.copy(at + 30_150, 50, at + 30_200, 5_000, kind="Memcpy HtoD (Pageable -> Device)")
    story.host("cudaStreamSynchronize", at + 30_250, 5_000, cat="cuda_runtime")
    story.host("aten::mm", at + 36_000, 100)
    story.launch(at + 36_010, at + 36_020, 20_000)
    story.host("aten::mm", at + 57_000, 100, tid=AUTOGRAD)
    story.host("autograd::engine::evaluate_function: MmBackward0", at + 56_900, 300, tid=AUTOGRAD)
    story.launch(at + 57_010, at + 57_020, 20_000, tid=AUTOGRAD)
    story.host("Optimizer.step#SGD.step", at + 60_000, 1_000, cat="user_annotation")
    story.host("aten::add_", at + 60_100, 100)
    story.launch(at + 60_110, at + 77_020, 5_000)
    story.host("aten::item", at + 62_000, 20_100)
    story.copy(at + 62_010, 20, at + 82_020, 10, kind="Memcpy DtoH (Device -> Pageable)")
    story.host("cudaStreamSynchronize", at + 62_050, 20_000, cat="cuda_runtime")


def write(story: Story, folder: Path) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": story.events}))
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    story = Story()
    for step in range(STEPS):
        tell(story, 1_000_000 + step * STEP_US)
    import_files([write(story, tmp_path)], tmp_path / "imported", partial=False, jobs=1)
    return load_trace(tmp_path / "imported")


def test_operators_become_the_calls_that_hooks_watch(trace: Trace) -> None:
    job = read_job(trace, 0)
    kinds = [call.kind for call in job.calls]
    step = [Kind.WAIT, Kind.COPY, Kind.BACKWARD, Kind.STEP, Kind.SYNC]
    assert kinds == step * STEPS
    assert job.calls[1].flags == 0
    assert job.calls[4].flags == Flag.IMPLICIT
    assert job.stream == 7


def test_a_mark_before_a_stall_that_another_was_put_just_before_is_left_out(trace: Trace) -> None:
    marks = put_marks(read_job(trace, 0))
    assert [mark.place for mark in marks[:4]] == [
        MarkPlace.COPY_END,
        MarkPlace.BACKWARD_BEGIN,
        MarkPlace.BACKWARD_END,
        MarkPlace.STEP_END,
    ]
    assert [mark.place for mark in marks[4:12]] == [
        MarkPlace.SYNC_BEGIN,
        MarkPlace.WAIT_BEGIN,
        MarkPlace.WAIT_END,
        MarkPlace.COPY_BEGIN,
        MarkPlace.COPY_END,
        MarkPlace.BACKWARD_BEGIN,
        MarkPlace.BACKWARD_END,
        MarkPlace.STEP_END,
    ]


def test_the_device_passes_a_mark_when_it_is_done_with_what_was_launched_before(
    trace: Trace,
) -> None:
    job = read_job(trace, 0)
    first, sync, wait_begin, wait_end, *_ = put_marks(job)[3:]
    assert first.device_ns - first.host_ns == pytest.approx(21_020_000, abs=1000)
    assert sync.device_ns == first.device_ns
    assert wait_begin.device_ns - wait_begin.host_ns < 10_000
    assert wait_end.device_ns - wait_begin.device_ns == pytest.approx(30_000_000, abs=1000)
    assert first.known_ns >= first.device_ns


def test_the_ledger_says_what_is_true_in_the_same_window(trace: Trace) -> None:
    job = read_job(trace, 0)
    truth = find_truth(trace, 0, 0, window_of(job, put_marks(job)))
    assert truth.input_wait == pytest.approx(0.30, abs=0.02)
    assert truth.copies == pytest.approx(0.05, abs=0.02)
    assert truth.device_idle == pytest.approx(0.50, abs=0.02)
    assert truth.launch_bound == pytest.approx(0.20, abs=0.02)


def test_the_recording_has_the_calls_the_marks_and_the_drivers_counters(
    trace: Trace, tmp_path: Path
) -> None:
    job = read_job(trace, 0)
    marks = write_recording(job, tmp_path / "run", "made-up", with_counters=True)
    timeline = load_recording(tmp_path / "run")
    assert isinstance(timeline, Timeline)
    assert events.batches(timeline, pl.lit(value=True)).height == STEPS
    assert timeline.table("events").filter(kind=int(Kind.MARK)).height == len(marks)
    shares = timeline.table("devices").filter(name="util.gpu_frac")["value"].to_list()
    assert shares
    assert sum(shares) / len(shares) == pytest.approx(0.46, abs=0.02)  # of 45 ms a step, or 50


@pytest.mark.parametrize(
    ("name", "cat"),
    [
        ("_MultiProcessingDataLoaderIter.__next__", "user_annotation"),
        ("torch/utils/data/dataloader.py(703): __next__", "python_function"),
        ("[dataloader]", "user_annotation"),
        ("[pl][profile][_TrainingEpochLoop].train_dataloader_next", "cpu_op"),
    ],
)
def test_a_loader_goes_by_several_names(tmp_path: Path, name: str, cat: str) -> None:
    story = Story()
    for step in range(STEPS):
        tell(story, 1_000_000 + step * STEP_US)
    for event in story.events:
        if event["name"] == NEXT:
            event |= {"name": name, "cat": cat}
    told = replay(write(story, tmp_path))
    for figure in ("device_idle", "input_wait", "launch_bound", "copies"):
        assert told["found"][figure] == pytest.approx(told["true"][figure], abs=0.02)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda event: event.update(tid=9) if event["name"] == NEXT else None, "thread 9 takes"),
        (lambda event: event.pop("args", None), "does not show the call"),
        (
            lambda event: event.update(cat="cpu_op") if "stream" in event.get("args", {}) else None,
            "nothing that a device did",
        ),
    ],
)
def test_what_cannot_be_replayed_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Any, why: str
) -> None:
    story = Story()
    for step in range(STEPS):
        tell(story, 1_000_000 + step * STEP_US)
    for event in story.events:
        damage(event)
    assert main([str(write(story, tmp_path))]) == 3
    assert why in capsys.readouterr().err


def test_a_trace_without_a_loader_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = Story()
    story.host("aten::mm", 1000, 100)
    story.launch(1010, 1020, 50)
    story.launch(1110, 1120, 50)
    assert main([str(write(story, tmp_path))]) == 3
    assert "neither a loader nor an optimizer" in capsys.readouterr().err


def test_a_trace_of_one_step_is_laid_out_repeatedly(tmp_path: Path) -> None:
    """As a job of such steps: the truth is that of the one."""
    story = Story()
    story.host("ProfilerStep#3", 1_000_000, STEP_US, cat="user_annotation")
    tell(story, 1_000_000)
    told = replay(write(story, tmp_path))
    assert told["steps"] > 3
    assert told["true"]["input_wait"] == pytest.approx(30 / 82, abs=0.02)
    assert told["true"]["device_idle"] == pytest.approx(32 / 82, abs=0.02)
    for figure in ("device_idle", "input_wait", "launch_bound", "copies"):
        assert told["found"][figure] == pytest.approx(told["true"][figure], abs=0.02)


def test_a_job_whose_batches_come_from_elsewhere_is_known_by_its_optimizer(tmp_path: Path) -> None:
    story = Story()
    for step in range(STEPS):
        tell(story, 1_000_000 + step * STEP_US)
    story.events = [event for event in story.events if event["name"] != NEXT]
    told = replay(write(story, tmp_path))
    assert told["steps"] == STEPS
    assert told["true"]["input_wait"] == told["found"]["input_wait"] == 0
    assert told["found"]["device_idle"] == pytest.approx(0.50, abs=0.02)
    assert told["found"]["device_idle"] == pytest.approx(told["true"]["device_idle"], abs=0.02)
