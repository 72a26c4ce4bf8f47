"""A training as people write it for a GPU, on the emulated device of bench/emu.

The model is a chain of small layers, whose kernels each take the time that is asked for: few long
ones keep the device busy, many short ones leave it waiting for launches. Nothing here waits for the
device but what scripts wait for: copies, values that are read. The last line is from its log.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import trainer
from bench import emu
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

FEATURES = 16
COPIES = ("blocking", "asynchronous", "side-stream")


class Rows(Dataset[tuple[Tensor, int]]):
    """Rows that take some Python to prepare, and carry as many bytes as asked for."""

    def __init__(self, count: int, prepare_us: float, sample_kb: float) -> None:
        self.count = count
        self.rounds = int(prepare_us * 6)
        self.row = torch.randn(max(FEATURES, int(sample_kb * 250)))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        value = index
        for _ in range(self.rounds):
            value = (value * 31 + 7) % 65_521
        return self.row, (index + value) % 10


class Chain(nn.Module):
    """Layer after layer; with `checks` some of them look at a value on the host."""

    def __init__(self, layers: int, checks: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(layers))
        self.head = nn.Linear(FEATURES, 10)
        self.every = layers // checks if checks else layers + 1

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, :FEATURES]
        for number, layer in enumerate(self.layers, start=1):
            x = x + torch.tanh(layer(x)) * 0.1
            if number % self.every == 0 and x.abs().max().item() > 1e6:
                raise RuntimeError("activations explode")
        return self.head(x)


class Copier:
    """Brings batches to the device the way that was asked for."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        self.way = args.copy
        self.device = device
        self.side = torch.Stream(device) if self.way == "side-stream" else None

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Batches on the device; with a side stream the next one is on its way already."""
        if self.side is None:
            for batch in loader:
                yield self._move(batch)
            return
        following = None
        for batch in itertools.chain(loader, [None]):
            current, following = following, self._move_beside(batch) if batch else None
            if current is not None:
                yield current

    def _move(self, batch: Any) -> Any:
        is_asynchronous = self.way != "blocking"
        return [part.to(self.device, non_blocking=is_asynchronous) for part in batch]

    def _move_beside(self, batch: Any) -> Any:
        assert self.side is not None
        main = torch.accelerator.current_stream(self.device)
        with self.side:
            moved = self._move(batch)
        main.wait_stream(self.side)
        return moved


class Training:
    """Forward, backward, and a step after so many batches."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        self.args = args
        self.model = Chain(args.layers, args.checks).to(device)
        weights = list(self.model.parameters())
        self.optimizers = [
            torch.optim.SGD(weights[number :: args.optimizers], lr=0.01)
            for number in range(args.optimizers)
        ]
        self.scaler = torch.amp.GradScaler("emu", enabled=args.amp)
        self.loss = torch.zeros((), device=device)

    def step(self, number: int, inputs: Tensor, labels: Tensor) -> None:
        """One microbatch; the optimizers after every `accumulate` of them."""
        with torch.autocast("emu", dtype=torch.float16, enabled=self.args.amp):
            self.loss = functional.cross_entropy(self.model(inputs), labels)
        self.scaler.scale(self.loss / self.args.accumulate).backward()
        if number % self.args.accumulate == 0:
            for optimizer in self.optimizers:
                self.scaler.step(optimizer)
            self.scaler.update()
            for optimizer in self.optimizers:
                optimizer.zero_grad()
        if self.args.read_every and number % self.args.read_every == 0:
            value = self.loss.item()
            if number % trainer.PRINT_EVERY == 0:
                print(f"step {number} loss {value:.3f}", flush=True)


class Replayed:
    """A whole step as one graph: batches are copied into the tensors that it was captured with."""

    def __init__(self, training: Training, batch: Any) -> None:
        self.inputs, self.labels = (part.clone() for part in batch)
        training.loss = torch.zeros(())  # what was computed before must not be captured
        self.graph = torch.accelerator.Graph()
        with torch.Stream(self.inputs.device), self.graph:
            training.step(training.args.accumulate, self.inputs, self.labels)

    def step(self, _number: int, inputs: Tensor, labels: Tensor) -> None:
        """Replay it."""
        self.inputs.copy_(inputs)
        self.labels.copy_(labels)
        self.graph.replay()


def train(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    device = torch.device(args.device)
    training = Training(args, device)
    take: Any = training
    loader = DataLoader(
        Rows(args.batch * args.count, args.prepare_us, args.sample_kb),
        args.batch,
        num_workers=args.workers,
        pin_memory=args.pin,
        persistent_workers=args.workers > 0,
    )
    copier = Copier(args, device)
    endless = itertools.chain.from_iterable(itertools.repeat(loader))
    started_ns = steps = 0
    for number, batch in enumerate(copier.batches(endless), start=1):
        take.step(number, *batch)
        if args.graph and number == args.accumulate:
            training.args.read_every = 0
            take = Replayed(training, batch)
        if number == trainer.PRINT_EVERY:
            started_ns = time.monotonic_ns()
        elif started_ns:
            steps += 1
            if time.monotonic_ns() - started_ns > args.seconds * 1e9:
                break
    account(args, device, started_ns, steps)


def account(args: argparse.Namespace, device: torch.device, started_ns: int, steps: int) -> None:
    """The last line of output: what the device did since."""
    if torch.emu.contexts() != [device.index or 0]:
        raise SystemExit(f"devices {torch.emu.contexts()} were used")
    ended_ns = time.monotonic_ns()
    wall_ns = ended_ns - started_ns
    truth = {
        "steps": steps // args.accumulate,
        "samples_per_s": round(steps * args.batch / wall_ns * 1e9, 2),
        "busy_frac": round(emu.busy_ns(device.index or 0, started_ns, ended_ns) / wall_ns, 4),
        "wait_frac": None,
    }
    print(json.dumps({"zoo": truth}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="emu")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--count", type=int, default=200, help="batches in an epoch")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--prepare-us", type=float, default=10.0, help="Python for a sample")
    parser.add_argument("--sample-kb", type=float, default=0.1)
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--copy", choices=COPIES, default="blocking")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--kernel-us", type=float, default=250.0, help="device time of a kernel")
    parser.add_argument("--checks", type=int, default=0, help="values read in a forward pass")
    parser.add_argument("--read-every", type=int, default=trainer.PRINT_EVERY)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--optimizers", type=int, choices=[1, 2], default=1)
    parser.add_argument("--graph", action="store_true", help="replay whole steps")
    args = parser.parse_args()
    emu.configure(kernel_us=args.kernel_us)
    train(args)


if __name__ == "__main__":
    main()
