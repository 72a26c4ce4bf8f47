"""The device of bench/emu: ordinary torch code runs on it, and its time behaves as a GPU's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.emulated import REPOSITORY, ask_emulated
from tests.integration.harness import JOBS

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    return ask_emulated("""
        import io
        from torch import nn

        def train(device, dtype=None):
            torch.manual_seed(0)
            model = nn.Sequential(
                nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
            ).to(device)
            inputs, labels = torch.randn(8, 3, 8, 8).to(device), (torch.arange(8) % 5).to(device)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            for _ in range(3):
                loss = nn.functional.cross_entropy(model(inputs), labels)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            weights = [each.detach().cpu().double().sum().item() for each in model.parameters()]
            return [loss.item(), *weights]

        def scale():
            layer = nn.Linear(8, 4).to("emu")
            optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler("emu")
            with torch.autocast("emu", dtype=torch.float16):
                out = layer(torch.randn(4, 8, device="emu"))
                loss = nn.functional.mse_loss(out, torch.zeros_like(out))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return [str(out.dtype), str(loss.dtype), scaler.get_scale()]

        def recur():
            torch.manual_seed(0)
            cells = [nn.LSTM(4, 5), nn.GRU(4, 5)]
            inputs = torch.randn(3, 2, 4)
            told = []
            for cell in cells:
                host = cell(inputs)[0].sum()
                there = cell.to("emu")(inputs.to("emu"))[0].sum()
                there.backward()
                told.append(abs(host.item() - there.item()))
            return told

        def save():
            file = io.BytesIO()
            torch.save(nn.Linear(2, 2).to("emu").state_dict(), file)
            file.seek(0)
            return str(torch.load(file)["weight"].device)

        x = torch.tensor([3.0, -1.0, 2.0], device="emu")
        attention = [torch.randn(1, 2, 5, 8, device="emu", requires_grad=True) for _ in range(3)]
        nn.functional.scaled_dot_product_attention(*attention).sum().backward()
        torch.randn(64, 64, device="emu").matmul(torch.randn(64, 64, device="emu"))
        answer = {
            "host": train("cpu"),
            "device": train("emu"),
            "amp": scale(),
            "recurrent": recur(),
            "saved": save(),
            "masked": x[x > 0].tolist(),
            "grown": torch.add(x, 1, out=torch.empty(0, device="emu")).tolist(),
            "attention": [list(each.grad.shape) for each in attention],
            "accelerator": str(torch.accelerator.current_accelerator()),
            "elsewhere": str(torch.ones(1, device="emu:2").device),
            "contexts": torch.emu.contexts(),
            "current": torch.emu.current_device(),
        }
    """)


def test_training_gives_the_numbers_of_the_cpu(numbers: dict[str, Any]) -> None:
    assert numbers["device"] == pytest.approx(numbers["host"], rel=1e-6)


def test_autocast_and_scaled_gradients_work(numbers: dict[str, Any]) -> None:
    assert numbers["amp"] == ["torch.float16", "torch.float32", 65536.0]


def test_recurrent_cells_and_attention_work(numbers: dict[str, Any]) -> None:
    assert numbers["recurrent"] == pytest.approx([0, 0], abs=1e-5)
    assert numbers["attention"] == [[1, 2, 5, 8]] * 3


def test_masks_outputs_that_grow_and_checkpoints_work(numbers: dict[str, Any]) -> None:
    assert numbers["masked"] == [3.0, 2.0]
    assert numbers["grown"] == [4.0, 0.0, 3.0]
    assert numbers["saved"] == "emu:0"


def test_a_device_gets_a_context_when_it_is_used_and_not_before(numbers: dict[str, Any]) -> None:
    assert numbers["accelerator"] == "emu"
    assert numbers["elsewhere"] == "emu:2"
    assert numbers["contexts"] == [0, 2]
    assert numbers["current"] == 0


@pytest.fixture(scope="module")
def times() -> dict[str, Any]:
    return ask_emulated("""
        import threading
        import time

        def event():
            made = torch.Event("emu", enable_timing=True)
            made.record()
            return made

        def waited_ms(action, work_ms):
            torch.emu.synchronize()
            emu.kernel(work_ms)
            begun = time.monotonic()
            action()
            return (time.monotonic() - begun) * 1e3

        def is_asynchronous(action):
            stream = torch.Stream("emu")
            with stream:
                emu.kernel(5000)
                after = event()
                action()
                return not after.query()

        def is_elsewhere():
            class Where(torch.autograd.Function):
                @staticmethod
                def forward(ctx, x):
                    return x.view_as(x)
                @staticmethod
                def backward(ctx, grad):
                    threads.append(threading.get_ident())
                    return grad
            threads = []
            Where.apply(torch.ones(1, device="emu", requires_grad=True)).sum().backward()
            return threads != [threading.get_ident()]

        def fill():
            emu.configure(depth=4)
            took = waited_ms(lambda: [emu.kernel(10) for _ in range(6)], 10)
            emu.configure(depth=1024)
            return took

        def spin():
            emu.configure(spin=1)
            begun = time.thread_time()
            waited_ms(torch.emu.synchronize, 50)
            emu.configure(spin=0)
            return (time.thread_time() - begun) * 1e3

        host = torch.ones(1000)
        pinned = host.pin_memory()
        there = torch.ones(1000, device="emu")
        torch.emu.synchronize()
        marks = [event()]
        for length in (20, 5):
            emu.kernel(length)
            marks.append(event())
        answer = {"early": marks[-1].query()}
        torch.emu.synchronize()
        answer |= {
            "lengths": [one.elapsed_time(other) for one, other in zip(marks, marks[1:])],
            "item": waited_ms(lambda: there.sum().item(), 30),
            "cpu": waited_ms(lambda: there.cpu(), 30),
            "blocking": waited_ms(lambda: pinned.to("emu"), 30),
            "pageable": waited_ms(lambda: host.to("emu", non_blocking=True), 30),
            "mask": waited_ms(lambda: there[there > 0], 30),
            "launch": is_asynchronous(lambda: there + 1),
            "pinned": is_asynchronous(lambda: pinned.to("emu", non_blocking=True)),
            "are pinned": [host.is_pinned(), pinned.is_pinned()],
            "other thread": is_elsewhere(),
            "full": fill(),
            "spinning": spin(),
        }
        emu.configure(copy_gbps=1)
        torch.emu.synchronize()
        before = event()
        torch.ones(2_500_000).to("emu")
        after = event()
        answer["copy"] = before.elapsed_time(after)
        side = torch.Stream("emu")
        with side:
            emu.kernel(40)
        before = event()
        torch.accelerator.current_stream().wait_stream(side)
        after = event()
        torch.emu.synchronize()
        answer["other stream"] = before.elapsed_time(after)
    """)


def test_events_carry_the_times_of_kernels(times: dict[str, Any]) -> None:
    assert not times["early"]
    assert times["lengths"][1] == pytest.approx(5)
    assert times["lengths"][0] >= 20


@pytest.mark.parametrize("how", ["item", "cpu", "blocking", "pageable", "mask"])
def test_what_needs_the_device_waits_for_all_that_was_queued(
    times: dict[str, Any], how: str
) -> None:
    assert times[how] >= 29


def test_launches_and_copies_from_pinned_memory_return_at_once(times: dict[str, Any]) -> None:
    assert times["launch"]
    assert times["pinned"]
    assert times["are pinned"] == [False, True]


def test_backward_runs_on_a_thread_of_the_device(times: dict[str, Any]) -> None:
    assert times["other thread"]


def test_the_host_is_held_up_when_the_queue_is_full(times: dict[str, Any]) -> None:
    assert times["full"] >= 29


def test_a_wait_may_keep_its_core_busy(times: dict[str, Any]) -> None:
    assert times["spinning"] > 1


def test_a_copy_takes_its_time_on_the_device(times: dict[str, Any]) -> None:
    assert times["copy"] >= 10


def test_a_stream_waits_for_another(times: dict[str, Any]) -> None:
    assert times["other stream"] >= 30


def test_a_graph_takes_the_time_of_what_it_captured_and_refuses_events_meanwhile() -> None:
    told = ask_emulated("""
        graph, stream = torch.accelerator.Graph(), torch.Stream("emu")
        with stream, graph:
            emu.kernel(10)
            emu.kernel(20)
            capturing = torch.emu.is_current_stream_capturing()
            try:
                torch.Event("emu", enable_timing=True).record()
                refused = False
            except RuntimeError:
                refused = True
        torch.emu.synchronize()
        emu.library.emu_clear_log()
        graph.replay()
        torch.emu.synchronize()
        rows = emu.read_log()
        length = int((rows["end_ns"] - rows["start_ns"]).sum())
        answer = [capturing, refused, len(rows), length]
    """)
    assert told == [True, True, 1, 30_000_000]


def test_a_forked_child_may_neither_use_the_device_nor_free_what_belongs_to_it() -> None:
    told = ask_emulated("""
        import os

        event = torch.Event("emu", enable_timing=True)
        event.record()

        def in_child(action):
            pid = os.fork()
            if not pid:
                os.close(2)
                try:
                    action()
                    os._exit(0)
                except RuntimeError:
                    os._exit(7)
            return os.waitpid(pid, 0)[1]

        def use():
            torch.ones(1, device="emu")

        def free():
            global event
            del event

        answer = [os.waitstatus_to_exitcode(in_child(action)) for action in (use, free)]
    """)
    assert told == [7, -6]


def test_collectives_are_queued_and_the_fast_device_waits_in_them() -> None:
    ask_emulated("answer = None")  # builds the device, or skips
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    told = subprocess.run(
        [sys.executable, *launcher, str(JOBS / "emulated_ranks.py")],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    fast = json.loads(next(x for x in told.stdout.splitlines() if x.startswith("{")))
    assert fast["summed"] == [3.0] * 4
    assert fast["pending"]
    assert fast["waited_ms"] >= 3 * 250
