"""Marks on a stand-in for a device's stream, whose clock the test sets."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader

from fuelline.record.hooks.torch import device_clock, training
from fuelline.record.hooks.torch.install import Installation
from fuelline.record.spool import Spool
from fuelline.schema.wire import Flag, Kind, MarkPlace, StepKind
from tests.integration.harness import Left, read_spools

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Stream:
    """Runs what is queued for so many milliseconds; the host is never made to wait."""

    stream_id = 7

    def __init__(self) -> None:
        self.host_ms = 0.0
        self.free_ms = 0.0
        self.is_capturing = False
        self.made = 0
        self.devices: list[Any] = []
        self.current_device = 0

    @contextlib.contextmanager
    def turn_to(self, index: int) -> Iterator[None]:
        before, self.current_device = self.current_device, index
        try:
            yield
        finally:
            self.current_device = before

    def answer_capturing(self) -> bool:
        self.devices.append(torch.device("cuda", self.current_device))
        return self.is_capturing

    def launch(self, duration_ms: float) -> None:
        self.free_ms = max(self.free_ms, self.host_ms) + duration_ms


def make_event(stream: Stream) -> type:
    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing
            stream.made += 1
            self.pid = os.getpid()

        def record(self, on: Any) -> None:
            assert on is stream
            assert not stream.is_capturing
            self.pass_at(stream)

        def pass_at(self, stream: Stream) -> None:
            self.at_ms = max(stream.free_ms, stream.host_ms)

        def query(self) -> bool:
            assert not stream.is_capturing
            return bool(self.at_ms <= stream.host_ms)

        def elapsed_time(self, other: Any) -> float:
            assert self.query()
            assert other.query()
            return float(other.at_ms - self.at_ms)

        def synchronize(self) -> None:
            pytest.fail("the recorder must never wait for the device")

        def __del__(self) -> None:
            if os.getpid() != self.pid:
                os._exit(86)  # as a driver that is used in a forked child

    return Event


def find_stream(stream: Stream, device: torch.device) -> Stream:
    stream.devices.append(device)
    return stream


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    made = Stream()
    monkeypatch.setattr(torch.cuda, "Event", make_event(made))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: find_stream(made, device))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: made.current_device)
    monkeypatch.setattr(torch.cuda, "device", made.turn_to)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", made.answer_capturing)
    monkeypatch.setattr(
        device_clock,
        "find_device",
        lambda optimizer: torch.device("cuda", 3),
    )
    monkeypatch.setattr(device_clock, "FRESH_NS", 0)
    return made


@pytest.fixture
def installation(tmp_path: Path, stream: Stream) -> Iterator[Installation]:
    del stream  # is there first
    made = install(tmp_path)
    yield made
    made.uninstall()


def install(folder: Path) -> Installation:
    made = Installation(Spool(str(folder / "spool")))
    for file in ("training", "loader", "device_clock"):
        made.add(file, "install")
    return made


def train(
    stream: Stream,
    *,
    wait_ms: float,
    launch_ms: float,
    device_ms: float,
    steps: int = 20,
    microbatches: int = 1,
) -> None:
    """Each step: the host waits for a batch, then queues work while the device runs behind."""
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for number, _ in enumerate(DataLoader(Slow(stream, wait_ms, steps), batch_size=1), 1):
        weight.sum().backward()
        stream.launch(device_ms)
        stream.host_ms += launch_ms
        if number % microbatches == 0:
            optimizer.step()


class Slow(torch.utils.data.Dataset[int]):
    def __init__(self, stream: Stream, wait_ms: float, count: int) -> None:
        self.stream, self.wait_ms, self.count = stream, wait_ms, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        self.stream.host_ms += self.wait_ms
        return index


def read(folder: Path) -> Left:
    (left,) = read_spools(folder)
    return left


def idle_in_waits(folder: Path) -> list[float]:
    """Milliseconds of the device between the marks before and after each wait."""
    marks = [(record[6], record[3] / 1e6) for record in read(folder).of(Kind.MARK)]
    return [
        round(after - before, 3)
        for (place, before), (next_place, after) in itertools.pairwise(marks)
        if (place, next_place) == (MarkPlace.WAIT_BEGIN, MarkPlace.WAIT_END)
    ]


def test_a_wait_that_the_queue_hides_leaves_no_idle_time(
    installation: Installation, stream: Stream, tmp_path: Path
) -> None:
    train(stream, wait_ms=3, launch_ms=1, device_ms=10)
    assert set(idle_in_waits(tmp_path)[1:]) == {0.0}


def test_a_device_that_runs_dry_is_idle_for_what_the_queue_does_not_hide(
    installation: Installation, stream: Stream, tmp_path: Path
) -> None:
    train(stream, wait_ms=30, launch_ms=1, device_ms=10)
    idle = idle_in_waits(tmp_path)
    assert len(idle) > 15
    assert set(idle[:-1]) == {21.0}


def test_gradient_accumulation_hides_no_idle_time(
    installation: Installation, stream: Stream, tmp_path: Path
) -> None:
    """Of 34 ms a microbatch the device is idle for 24, in every one of them."""
    train(stream, wait_ms=33, launch_ms=1, device_ms=10, steps=32, microbatches=8)
    assert set(idle_in_waits(tmp_path)[:-1]) == {24.0}


def test_a_mark_says_where_on_which_device_and_stream(
    installation: Installation, stream: Stream, tmp_path: Path
) -> None:
    train(stream, wait_ms=30, launch_ms=1, device_ms=10)
    marks = read(tmp_path).of(Kind.MARK)
    assert {(r[2], r[4], r[5]) for r in marks} == {(3, 1, 7)}
    expected = ["STEP_END", "WAIT_BEGIN", "WAIT_END", "BACKWARD_BEGIN", "BACKWARD_END"]
    assert [MarkPlace(record[6]).name for record in marks[:5]] == expected
    assert all(record[1] >= 0 for record in marks)
    assert not read(tmp_path).of(Kind.DEVICE_STEP)


def test_no_device_but_that_of_the_weights_is_asked(
    installation: Installation, stream: Stream
) -> None:
    train(stream, wait_ms=3, launch_ms=1, device_ms=10)
    assert set(stream.devices) == {torch.device("cuda", 3)}


def test_a_stall_that_begins_right_after_a_mark_begins_with_it(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_clock, "FRESH_NS", 10**12)
    installation = install(tmp_path)
    train(stream, wait_ms=30, launch_ms=1, device_ms=10)
    installation.uninstall()
    places = {record[6] for record in read(tmp_path).of(Kind.MARK)}
    assert MarkPlace.WAIT_BEGIN not in places
    assert places >= {MarkPlace.STEP_END, MarkPlace.WAIT_END, MarkPlace.BACKWARD_BEGIN}


def test_events_are_used_again(installation: Installation, stream: Stream) -> None:
    train(stream, wait_ms=30, launch_ms=1, device_ms=10)
    assert stream.made < 15


def test_a_device_that_never_gets_there_costs_a_bounded_number_of_events(
    installation: Installation, stream: Stream
) -> None:
    train(stream, wait_ms=0, launch_ms=0, device_ms=10, steps=200)
    assert stream.made <= 256


def test_after_a_full_queue_marks_go_on_where_no_stall_can_be_charged_with_the_gap(
    installation: Installation, stream: Stream, tmp_path: Path
) -> None:
    train(stream, wait_ms=0, launch_ms=0, device_ms=1, steps=200)
    stream.host_ms = stream.free_ms
    train(stream, wait_ms=3, launch_ms=1, device_ms=1)
    marks = sorted(read(tmp_path).of(Kind.MARK), key=lambda record: record[0])
    assert len(marks) > 256
    assert marks[256][6] in {MarkPlace.STEP_END, MarkPlace.WAIT_BEGIN}


def test_a_stream_that_torch_did_not_make_is_left_alone(
    installation: Installation,
    stream: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its number is its address; whoever made it may free it between two steps."""
    monkeypatch.setattr(Stream, "stream_id", 0x55D0_1234_5670)
    train(stream, wait_ms=3, launch_ms=1, device_ms=10)
    assert not stream.made
    (spot,) = read(tmp_path).blindspots()
    assert "not torch's own" in spot["why"]


def test_a_copy_on_another_stream_is_timed_there_and_holds_up_no_other_mark(
    installation: Installation, stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(stream, wait_ms=3, launch_ms=1, device_ms=1)
    clock = installation.guest.device_clock
    other = SimpleNamespace(stream_id=33)
    recorded: list[Any] = []
    monkeypatch.setattr(
        torch.cuda.Event, "record", lambda event, on: recorded.append(on) or event.pass_at(stream)
    )
    monkeypatch.setattr(clock, "_current_stream", lambda device: other)
    clock.mark_beside(MarkPlace.BESIDE_BEGIN)
    stream.host_ms += 5
    clock.mark_beside(MarkPlace.BESIDE_END)
    assert recorded == [other, other]
    monkeypatch.setattr(clock, "_current_stream", lambda device: stream)
    clock.mark_beside(MarkPlace.BESIDE_BEGIN)
    assert recorded == [other, other]
    clock.read_and_mark(int(MarkPlace.STEP_END))
    begin, end = (
        record
        for record in read(tmp_path).of(Kind.MARK)
        if record[6] in {MarkPlace.BESIDE_BEGIN, MarkPlace.BESIDE_END}
    )
    assert begin[5] == end[5] == 33
    assert end[3] - begin[3] == pytest.approx(5_000_000, abs=10)


def test_a_stream_under_capture_is_not_touched(
    installation: Installation, stream: Stream, tmp_path: Path
) -> None:
    stream.is_capturing = True
    train(stream, wait_ms=3, launch_ms=1, device_ms=10)
    assert not stream.made
    assert not read(tmp_path).blindspots()


def test_a_job_without_the_device_gets_no_event(
    installation: Installation, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_clock, "find_device", lambda _: None)
    train(stream, wait_ms=3, launch_ms=1, device_ms=10)
    assert not stream.made
    assert not stream.devices


def test_a_copy_says_which_device_trains_where_no_weight_does(
    installation: Installation, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that are offloaded to the host, or no optimizer at all."""
    monkeypatch.setattr(device_clock, "find_device", lambda _: None)
    train(stream, wait_ms=3, launch_ms=1, device_ms=10)
    clock = installation.guest.device_clock
    clock.notice_copy(torch.zeros(1))
    clock.notice_copy(torch.zeros(1, device="meta"))
    assert not clock.has_device
    clock.notice_copy(SimpleNamespace(device=torch.device("cuda", 3)))
    assert clock.has_device
    train(stream, wait_ms=3, launch_ms=1, device_ms=10)
    assert stream.made
    assert set(stream.devices) == {torch.device("cuda", 3)}


def test_a_forked_child_frees_no_event_of_its_parent(
    installation: Installation, stream: Stream
) -> None:
    train(stream, wait_ms=3, launch_ms=1, device_ms=10)
    clock = installation.guest.device_clock
    assert clock._queue.latest is not None
    child = os.fork()
    if not child:
        clock.mark(MarkPlace.STEP_END)
        clock.read()
        installation.uninstall()
        del clock
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_that_is_forked_after_the_recording_frees_none_either(
    stream: Stream, tmp_path: Path
) -> None:
    installation = install(tmp_path)
    train(stream, wait_ms=3, launch_ms=1, device_ms=10)
    installation.uninstall()
    child = os.fork()
    if not child:
        installation.guest.device_clock = None
        del installation
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_device_without_timed_events_is_a_blindspot(
    installation: Installation,
    stream: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_clock, "find_device", lambda _: torch.device("mps"))
    train(stream, wait_ms=3, launch_ms=1, device_ms=10)
    (spot,) = read(tmp_path).blindspots()
    assert spot["what"] == "clock of mps"
    assert not read(tmp_path).faults


def test_any_accelerator_answers_to_the_general_events_of_torch(
    installation: Installation,
    stream: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = make_event(stream)
    monkeypatch.setattr(torch, "Event", lambda *, device, enable_timing: made(enable_timing=True))
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda device: stream)
    monkeypatch.setattr(device_clock, "find_device", lambda _: torch.device("privateuseone", 1))
    train(stream, wait_ms=30, launch_ms=1, device_ms=10)
    assert set(idle_in_waits(tmp_path)[:-1]) == {21.0}


def test_weights_on_a_device_of_a_plug_in_bring_its_hooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel for the CPU, a backend that came as a plug-in (an NPU, say)."""
    installation = Installation(Spool(str(tmp_path / "spool")))
    try:
        installation.add_all(lambda _, action: action())
        assert installation.guest.device_clock is None
        monkeypatch.setattr(training, "find_device", lambda _: torch.device("privateuseone", 0))
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).step()
        assert installation.guest.device_clock is not None
        assert "to" in vars(torch.Tensor)
    finally:
        installation.uninstall()


def test_a_step_that_a_gradient_scaler_leaves_out_counts_as_a_step(
    installation: Installation, tmp_path: Path
) -> None:
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for factor in (1.0, float("inf"), 1.0):
        scaler.scale(weight.sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    steps = read(tmp_path).of(Kind.STEP)
    assert [record[8] & Flag.SKIPPED for record in steps] == [0, Flag.SKIPPED, 0]
    assert len({record[2] for record in steps}) == 1


def test_replays_of_a_graph_are_marked_as_such(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = training.Replay(installation.guest)
    graph = type("Graph", (), {})()
    installation.guest.appoint()
    replay = hook.wrap(lambda graph: None)
    replay(graph)
    replay(graph)
    steps = read(tmp_path).of(Kind.STEP)
    assert [record[3] for record in steps] == [StepKind.REPLAY] * 2


def test_the_first_weight_says_where_a_model_is() -> None:
    weights = [SimpleNamespace(device=torch.device("cuda", 2)), torch.zeros(1)]
    optimizer = SimpleNamespace(param_groups=[{"params": []}, {"params": weights}])
    assert training.find_device(optimizer) == torch.device("cuda", 2)
    optimizer.param_groups[1]["params"] = [torch.zeros(1)]
    assert training.find_device(optimizer) is None
