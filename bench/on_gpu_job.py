"""The training that `bench.on_gpu` starts on a real accelerator, or on the emulated one.

Steps of a chain of products whose size says what the device is: `busy` with large ones, waiting for
launches of many small ones (`launch`), or for a loader (`starved`). Its last line is what it knows.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import statistics
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

KINDS = ("busy", "launch", "starved", "reads")
_SIZES = {"busy": (2048, 8), "launch": (32, 60), "starved": (2048, 4), "reads": (1024, 4)}
"""Width and depth: on an A100 20 ms of products, 60 short kernels, ..."""
_PREPARE_MS = {"starved": 60.0}
_SETTLING = 5


class Rows(Dataset[Tensor]):
    """Rows that take the loader their time, once for each batch."""

    def __init__(self, width: int, batch: int, prepare_ms: float) -> None:
        self.row = torch.randn(width)
        self.batch = batch
        self.prepare_ms = prepare_ms

    def __len__(self) -> int:
        return 64 * self.batch

    def __getitem__(self, index: int) -> Tensor:
        until_s = time.thread_time() + (0 if index % self.batch else self.prepare_ms / 1e3)
        while time.thread_time() < until_s:
            pass
        return self.row


class Job:
    """The model and one step of it."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        torch.manual_seed(0)
        width, depth = _SIZES[args.kind]
        if args.small or device.type == "emu":
            width = 64  # where the host computes what the device is to spend time on
        self.width = width
        self.args = args
        layers: list[nn.Module] = []
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.Tanh()]
        self.model = nn.Sequential(*layers).to(device)
        self.device = device
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.losses: list[Tensor] = []

    def step(self, batches: list[Tensor]) -> None:
        """As many batches as are accumulated, and an optimizer step."""
        for batch in batches:
            inputs = batch.to(self.device, non_blocking=True)
            loss = functional.mse_loss(self.model(inputs), inputs)
            (loss / len(batches)).backward()
            self.losses.append(loss.detach())
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.args.kind == "reads":
            self.losses[-1].item()


def train(args: argparse.Namespace) -> dict[str, Any]:
    """All steps; what came of them."""
    device = torch.device(args.device)
    torch.set_num_threads(1)
    job = Job(args, device)
    batch = 16 if args.small or args.kind == "launch" else 256
    rows = Rows(job.width, batch, _PREPARE_MS.get(args.kind, 0.0))
    workers = 1 if args.kind == "starved" else args.workers
    loader = DataLoader(rows, batch, num_workers=workers, pin_memory=device.type != "cpu")
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    times_s, traced = [], _trace(args, device)
    for number in range(args.steps):
        taken = list(itertools.islice(batches, args.accumulate))
        begun_s = time.perf_counter()
        job.step(taken)
        times_s.append(time.perf_counter() - begun_s)
        if number == _SETTLING:
            traced.start()
    torch.accelerator.synchronize()
    told = traced.stop()
    numbers = torch.stack(job.losses).cpu().numpy().tobytes()
    return {
        "losses": hashlib.sha256(numbers).hexdigest(),
        "step_us": statistics.median(times_s[_SETTLING:]) * 1e6,
        "device_idle": told,
        "graph_breaks": _count_breaks() if args.compile else None,
        "contexts": _list_contexts(device),
    }


def _list_contexts(device: torch.device) -> list[int]:
    """Devices that this process has used, each of which keeps memory for it."""
    if device.type == "emu":
        return list(torch.emu.contexts())
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", lambda _: False)
    return [index for index in range(torch.accelerator.device_count()) if has_context(index)]


def _count_breaks() -> int:
    import torch._dynamo as dynamo

    return sum(dynamo.utils.counters["graph_break"].values())


class _Nothing:
    def start(self) -> None:
        pass

    def stop(self) -> float | None:
        return None


class _Profiled(_Nothing):
    """The profiler's truth: the union of what it saw on the device, written for the importer."""

    def __init__(self, target: str) -> None:
        from torch import profiler

        self._target = target
        self._profiler = profiler.profile()

    def start(self) -> None:
        self._profiler.start()

    def stop(self) -> float | None:
        self._profiler.stop()
        self._profiler.export_chrome_trace(self._target)
        return None


class _Emulated(_Nothing):
    """The emulated device's own log."""

    def start(self) -> None:
        self._begun_ns = time.monotonic_ns()

    def stop(self) -> float | None:
        from bench import emu

        ended_ns = time.monotonic_ns()
        return 1 - emu.busy_ns(0, self._begun_ns, ended_ns) / (ended_ns - self._begun_ns)


def _trace(args: argparse.Namespace, device: torch.device) -> _Nothing:
    if device.type == "emu":
        return _Emulated()
    return _Profiled(args.trace) if args.trace else _Nothing()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", required=True)
    parser.add_argument("--kind", choices=KINDS, default="busy")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="little work: what the host costs")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--trace", default="", help="profile, and write the trace here")
    args = parser.parse_args()
    if args.device.startswith("emu"):
        from bench import emu

        emu.configure(kernel_us=3 if args.kind == "launch" or args.small else 500)
    if args.compile:
        Job.step = torch.compile(Job.step, backend="eager")  # type: ignore[method-assign]
    print(json.dumps({"on_gpu": train(args)}), flush=True)


if __name__ == "__main__":
    main()
