"""The device hooks on the emulated device: marks where they belong, and nowhere else."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from fuelline.schema.wire import Kind, MarkPlace, StepKind
from tests.emulated import ask_emulated
from tests.integration.harness import Left, read_spools

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torch

PREPARE = """
    import sys
    import time
    from torch import nn
    from torch.utils.data import DataLoader, Dataset
    from fuelline.record.hooks.torch.install import Installation
    from fuelline.record.spool import Spool

    installation = Installation(Spool({folder!r} + "/spool"))
    installation.add_all(lambda name, act: act())

    class Slow(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            time.sleep({wait_s})
            return torch.ones(8)

    model = nn.Linear(8, 8).to("{device}")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """
    for batch in DataLoader(Slow(), 2):
        inputs = batch.to("{device}")
        with torch.accelerator.device_index(inputs.device.index):
            emu.kernel({device_ms})
        model(inputs).sum().backward()
        optimizer.step()
    torch.accelerator.synchronize(torch.device("{device}"))
    installation.uninstall()
    answer = torch.emu.contexts()
"""


def run(folder: Path, loop: str = LOOP, **told: Any) -> tuple[Any, Left]:
    settings = {"folder": str(folder), "wait_s": 0.0, "device": "emu:0", "device_ms": 0, **told}
    answer = ask_emulated((PREPARE + loop).format(**settings))
    (left,) = read_spools(folder)
    return answer, left


def between_ms(left: Left, begin: MarkPlace, end: MarkPlace) -> list[float]:
    """Device time between two marks that follow each other."""
    marks = sorted(left.of(Kind.MARK))
    pairs = itertools.pairwise(marks)
    return [
        (after[3] - before[3]) / 1e6
        for before, after in pairs
        if (before[6], after[6]) == (begin, end)
    ]


def test_only_the_device_of_the_weights_is_touched(tmp_path: Path) -> None:
    contexts, left = run(tmp_path, device="emu:3")
    assert contexts == [3]
    assert {mark[2] for mark in left.of(Kind.MARK)} == {3}


def test_a_wait_for_input_on_a_dry_device_is_idle_time(tmp_path: Path) -> None:
    _, left = run(tmp_path, wait_s=0.03)
    waits = between_ms(left, MarkPlace.WAIT_BEGIN, MarkPlace.WAIT_END)
    waits += between_ms(left, MarkPlace.STEP_END, MarkPlace.WAIT_END)
    assert sum(wait >= 55 for wait in waits) >= 4  # the last one finds the loader's end


def test_a_blocking_copy_does_not_take_the_device_what_it_still_had_to_do(tmp_path: Path) -> None:
    _, left = run(tmp_path, device_ms=300)
    host_ms = [copy[1] / 1e6 for copy in left.of(Kind.COPY)[1:]]
    assert min(host_ms) > 100
    copies = between_ms(left, MarkPlace.COPY_BEGIN, MarkPlace.COPY_END)
    copies += between_ms(left, MarkPlace.WAIT_END, MarkPlace.COPY_END)
    assert copies
    assert all(copy < 100 for copy in copies)


def test_a_replayed_graph_is_a_step(tmp_path: Path) -> None:
    _, left = run(
        tmp_path,
        """
    graph = torch.accelerator.Graph()
    with torch.Stream("emu"), graph:
        model(torch.ones(2, 8, device="emu")).sum().backward()
    for batch in DataLoader(Slow(), 2):
        graph.replay()
    installation.uninstall()
    answer = None
""",
    )
    steps = left.of(Kind.STEP)
    assert [step[3] for step in steps] == [StepKind.REPLAY] * 6


def test_the_cpu_time_of_a_backward_pass_is_that_of_autograds_own_thread(tmp_path: Path) -> None:
    loop = """
    class Busy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            until = time.thread_time() + 0.02
            while time.thread_time() < until:
                pass
            return gradient

    for number in range(30):
        Busy.apply(model(torch.ones(2, 8).to("{device}"))).sum().backward()
        optimizer.step()
    installation.uninstall()
    answer = None
"""
    _, left = run(tmp_path, loop)
    measured = [record for record in left.of(Kind.BACKWARD) if record[4] > 0]
    assert measured
    for record in measured:
        _, _, _, own_ns, engine_ns, *_ = record
        assert engine_ns >= 20_000_000
        assert own_ns < engine_ns / 2
