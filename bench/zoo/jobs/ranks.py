"""Several ranks that train together over gloo, by DDP, FSDP or by hand; started by torchrun.

The device works while the host waits for it and occupies no core; gradients are real CPU tensors
and are really exchanged. On bench/emu (ZOO_DEVICE=emu) the host only queues both. One rank may be
slow in one part of its step, or ranks may take turns. The first rank's last line of output is the
truth as the job saw it, as in `trainer.py`.
"""

import argparse
import itertools
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from files import Features
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from trainer import tracer

FEATURES = 64
PARTS = ("none", "input", "forward", "backward", "optimizer", "logging")
ON_EMU = os.environ.get("ZOO_DEVICE") == "emu"
DRAWS: dict[str, Callable[[random.Random], float]] = {
    "none": lambda rng: 0.0,
    "uniform": lambda rng: rng.uniform(0, 2),
    "exponential": lambda rng: rng.expovariate(1),
    "rare": lambda rng: 10.0 if rng.random() < 0.1 else 0.0,
}
"""What a rank's own jitter looks like, with a mean of 1."""


class Clock:
    """How long the device takes for a part of this step, on this rank."""

    def __init__(self, args: argparse.Namespace, rank: int, ranks: int) -> None:
        self.args = args
        self.rank = rank
        self.ranks = ranks
        self.step = 0
        self.busy_s = 0.0
        self._rng = random.Random(5)
        self._turn = self.rank
        self._own_rng = random.Random(100 + rank)
        self._draw = DRAWS[args.jitter]

    def next_step(self) -> None:
        """Every rank draws the same number, so that they know whose turn it is."""
        self.step += 1
        self._turn = self._rng.randrange(self.ranks) if self.args.rotate else self.args.slow_rank

    def slow_ms(self, part: str) -> float:
        return self.args.slow_ms if part == self.args.slow and self.rank == self._turn else 0.0

    def work(self, part: str, usual_ms: float) -> None:
        """Wait for the device."""
        length_s = (usual_ms + self.slow_ms(part)) / 1000
        if part == "forward":
            length_s += self.args.jitter_ms / 1000 * self._draw(self._own_rng)
        self.busy_s += length_s
        if ON_EMU and part != "logging":
            torch.emu.kernel(length_s * 1000)
        else:
            time.sleep(length_s)


class Kernel(torch.autograd.Function):
    """The identity, which takes device time forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, clock: Clock) -> Tensor:
        ctx.clock = clock
        clock.work("forward", clock.args.forward_ms)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        ctx.clock.work("backward", ctx.clock.args.backward_ms)
        return grads[0], None


class Model(nn.Module):
    """A few real layers, a table of any size whose gradient is exchanged, and the device."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        args = clock.args
        self.clock = clock
        self.table = nn.Parameter(torch.zeros(max(FEATURES, int(args.gradient_mb * 250_000))))
        layers = [nn.Linear(FEATURES, args.width), nn.ReLU()]
        if args.batchnorm:
            layers.append(nn.BatchNorm1d(args.width))
        for _ in range(args.depth):
            layers += [nn.Linear(args.width, args.width), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(args.width, 10))

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)[:, :FEATURES].float() + self.table[:FEATURES]
        return self.layers(Kernel.apply(x, self.clock))


class Optimizer(torch.optim.SGD):
    """SGD on the device."""

    def __init__(self, model: nn.Module, clock: Clock) -> None:
        super().__init__(model.parameters(), lr=0.01)
        self.clock = clock

    def step(self, closure: Any = None) -> Any:
        self.clock.work("optimizer", 0.0)
        return super().step(closure)


class Prepared(TensorDataset):
    """Rows in memory, for which a rank may need some Python each."""

    def __init__(self, rows: Tensor, sample_ms: float) -> None:
        super().__init__(rows, torch.arange(len(rows)) % 10)
        self.sample_s = sample_ms / 1000

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        until_s = time.thread_time() + self.sample_s
        value = index
        while self.sample_s and time.thread_time() < until_s:
            value = sum((value * 31 + each) % 65_521 for each in range(50))
        row: tuple[Tensor, ...] = super().__getitem__(index)
        return row


class Saver:
    """Only the first rank saves, as in most scripts."""

    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        self.every = args.save_every if rank == 0 else 0
        self.state = torch.zeros(int(args.save_mb * 250_000)) if self.every else None
        self.folder = tempfile.TemporaryDirectory(dir=Path(__file__).parent)

    def save(self, step: int, model: nn.Module) -> None:
        if self.every and step % self.every == 0:
            state = {"model": model.state_dict(), "adam": self.state}
            torch.save(state, Path(self.folder.name) / "checkpoint.pt")


def make_loader(args: argparse.Namespace, rank: int, ranks: int) -> DataLoader[Any]:
    """Small files, each rank from a folder of its own if there are such, or data in memory."""
    slow_ms = args.slow_ms if args.slow == "input" and rank == args.slow_rank else 0.0
    if args.data:
        own = args.data / f"rank{rank}"
        dataset: Any = Features(own if own.exists() else args.data, args.per_sample)
    else:
        count = args.batch * ranks * args.steps
        dataset = Prepared(torch.randn(count, FEATURES), slow_ms / args.batch)
    sampler = DistributedSampler(dataset, ranks, rank, shuffle=True)
    return DataLoader(dataset, args.batch, sampler=sampler, num_workers=args.workers)


def wrap(model: nn.Module, args: argparse.Namespace) -> nn.Module:
    if args.wrap == "fsdp":
        return fully_shard(model)
    return DistributedDataParallel(model) if args.wrap == "ddp" else model


def average_by_hand(model: nn.Module, ranks: int) -> None:
    """One all-reduce a parameter, as before there was DDP."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= ranks


def train(args: argparse.Namespace) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    clock = Clock(args, rank, ranks)
    place = torch.device("emu" if ON_EMU else "cpu")
    model = wrap(Model(clock).to(place), args)
    optimizer = Optimizer(model, clock)
    saver = Saver(args, rank)
    loader = make_loader(args, rank, ranks)
    trace_step = tracer()
    started_s = 0.0
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for step, (inputs, labels) in enumerate(itertools.islice(batches, args.steps), start=1):
        clock.next_step()
        with trace_step(model):
            there = [part.to(place) if ON_EMU else part for part in (inputs, labels)]
            loss = functional.cross_entropy(model(there[0]), there[1])
            loss.backward()
            if args.wrap == "none":
                average_by_hand(model, ranks)
            optimizer.step()
            optimizer.zero_grad()
        if step % args.log_every == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step} loss {mean.item() / ranks:.3f}", flush=True)
        clock.work("logging", 0.0)
        saver.save(step, model)
        if not started_s:
            started_s, clock.busy_s = time.perf_counter(), 0.0
    if ON_EMU:
        torch.accelerator.synchronize()  # other ranks may still need what is queued here
    account(args, clock, time.perf_counter() - started_s)


def account(args: argparse.Namespace, clock: Clock, wall_s: float) -> None:
    """The last line of output, of one rank."""
    truth = {
        "steps": args.steps - 1,
        "samples_per_s": round((args.steps - 1) * args.batch * clock.ranks / wall_s, 2),
        "busy_frac": round(clock.busy_s / wall_s, 4),
        "wait_frac": None,
    }
    if clock.rank == 0:
        print(json.dumps({"zoo": truth}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--per-sample", type=int, default=2, help="files that make a sample")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--wrap", choices=["ddp", "fsdp", "none"], default="ddp")
    parser.add_argument("--batchnorm", action="store_true")
    parser.add_argument("--gradient-mb", type=float, default=0.1, help="size of the table")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--forward-ms", type=float, default=15.0, help="device time")
    parser.add_argument("--backward-ms", type=float, default=30.0, help="device time")
    parser.add_argument("--slow", choices=PARTS, default="none", help="longer on one rank")
    parser.add_argument("--slow-rank", type=int, default=1)
    parser.add_argument("--slow-ms", type=float, default=40.0, help="so much longer")
    parser.add_argument("--rotate", action="store_true", help="a random rank is slow each step")
    parser.add_argument("--jitter", choices=DRAWS, default="none", help="each rank its own")
    parser.add_argument("--jitter-ms", type=float, default=15.0, help="its mean")
    parser.add_argument("--save-every", type=int, default=0, help="steps between checkpoints")
    parser.add_argument("--save-mb", type=float, default=200.0)
    parser.add_argument("--log-every", type=int, default=10)
    args = parser.parse_args()
    backend = "gloo"
    if ON_EMU:
        from bench.emu import collectives

        collectives.register()
        backend = collectives.NAME
    dist.init_process_group(backend)
    train(args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
