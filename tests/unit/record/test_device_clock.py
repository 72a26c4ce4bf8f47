"""Two events a step on a stand-in for a CUDA stream, whose clock the test sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader

from fuelline.record.hooks.torch.install import Installation
from fuelline.record.spool import Spool
from fuelline.schema.wire import Kind
from tests.integration.harness import Left, read_spools

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Stream:
    """Runs what is queued for so many milliseconds; the host is never made to wait."""

    def __init__(self) -> None:
        self.host_ms = 0.0
        self.free_ms = 0.0
        self.is_capturing = False
        self.made = 0

    def launch(self, duration_ms: float) -> None:
        self.free_ms = max(self.free_ms, self.host_ms) + duration_ms


def make_event(stream: Stream) -> type:
    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing
            stream.made += 1

        def record(self) -> None:
            assert not stream.is_capturing
            self.at_ms = max(stream.free_ms, stream.host_ms)

        def query(self) -> bool:
            return self.at_ms <= stream.host_ms

        def elapsed_time(self, other: Any) -> float:
            assert self.query()
            assert other.query()
            return float(other.at_ms - self.at_ms)

        def synchronize(self) -> None:
            pytest.fail("the recorder must never wait for the device")

    return Event


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    made = Stream()
    monkeypatch.setattr(torch.cuda, "Event", make_event(made))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: made.is_capturing)
    return made


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    made = Installation(Spool(str(tmp_path / "spool")))
    for file in ("training", "loader", "device_clock"):
        made.add(file, "install")
    yield made
    made.uninstall()


def train(stream: Stream, *, wait_ms: float, launch_ms: float, device_ms: float) -> None:
    """Each step: the host waits for a batch, then queues work while the device runs behind."""
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in DataLoader(Slow(stream, wait_ms), batch_size=1):
        weight.sum().backward()
        stream.launch(device_ms)
        stream.host_ms += launch_ms
        optimizer.step()


class Slow(torch.utils.data.Dataset[int]):
    def __init__(self, stream: Stream, wait_ms: float) -> None:
        self.stream, self.wait_ms = stream, wait_ms

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        self.stream.host_ms += self.wait_ms
        return index


def read(folder: Path) -> Left:
    (left,) = read_spools(folder)
    return left


def steps(folder: Path) -> list[tuple[int, float, float]]:
    """Device, busy ms, idle ms."""
    return [(r[2], r[3] / 1e6, r[4] / 1e6) for r in read(folder).of(Kind.DEVICE_STEP)]


def test_a_wait_that_the_queue_hides_leaves_no_idle_time(
    installation: Installation, stream: Stream, tmp_path: Path
) -> None:
    train(stream, wait_ms=3, launch_ms=1, device_ms=10)
    told = steps(tmp_path)
    assert told
    assert set(told) == {(3, 10.0, 0.0)}


def test_a_device_that_runs_dry_is_idle_for_what_the_queue_does_not_hide(
    installation: Installation, stream: Stream, tmp_path: Path
) -> None:
    train(stream, wait_ms=30, launch_ms=1, device_ms=10)
    told = steps(tmp_path)
    assert told
    assert set(told) == {(3, 10.0, 21.0)}


def test_events_are_used_again(installation: Installation, stream: Stream) -> None:
    train(stream, wait_ms=30, launch_ms=1, device_ms=10)
    assert stream.made < 10


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
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    train(stream, wait_ms=3, launch_ms=1, device_ms=10)
    assert not stream.made
