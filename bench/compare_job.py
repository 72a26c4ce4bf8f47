"""A training of known work, for comparisons: `python -m bench.compare_job KIND [--extra N]`.

Work is counted, not timed: `--extra N` adds N units of busy work to every step, however fast the
machine is, where `--where` says: in the loop after a step, in its forward pass, in the samples.
`--where all` is a model of wider layers instead, a tenth more work in every part of a step. Kinds:
compute (the trainer computes), input (the trainer waits for one worker that computes), epochs
(short epochs whose workers start anew; `--persistent` keeps them).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 16
SHAPES = {"compute": (6, 100), "input": (4, 100), "epochs": (11, 17)}
"""Epochs, and steps in each."""
BATCH_UNITS = {"input": 160, "epochs": 32}
WIDTH = {"compute": 640}
WIDER = 1.05
"""Layers of which every tenth of the work is new: it grows with the square of their width."""
PLACES = ("loop", "forward", "samples", "all")


class Samples(Dataset[Any]):
    def __init__(self, count: int, batch_units: int) -> None:
        self.count = count
        self.batch_units = batch_units

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        place = index % BATCH
        work(self.batch_units * (place + 1) // BATCH - self.batch_units * place // BATCH)
        return torch.full((256,), float(index % 7))


def work(units: int) -> None:
    """Occupy a core: some 70 us a unit, half of it in Python and half in a library."""
    block = np.full((32, 32), 1.5)
    value = 0
    for _ in range(units):
        for number in range(300):
            value = (value * 3 + number) & 0xFFFF
        for _ in range(4):
            block = block @ block % 7.0


def build(kind: str, wider: float = 1.0) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model whose step takes about 10 ms, or a small one where the input is what takes time."""
    width = round(WIDTH.get(kind, 64) * wider)
    layers = [nn.Linear(256, width), nn.ReLU()]
    for _ in range(4 if width > 64 else 0):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def train(options: argparse.Namespace) -> None:
    """All epochs."""
    kind = options.kind
    extra = {place: options.extra * (place == options.where) for place in PLACES}
    epochs, steps = SHAPES[kind]
    torch.set_num_threads(1)
    units = BATCH_UNITS.get(kind, 0) + extra["samples"]
    loader = DataLoader(
        Samples(steps * BATCH, units),
        batch_size=BATCH,
        num_workers=4 if kind == "epochs" else 1,
        persistent_workers=kind != "epochs" or options.persistent,
    )
    model, optimizer = build(kind, WIDER if options.where == "all" else 1.0)
    for _ in range(epochs):
        for batch in loader:
            loss = model(batch).square().mean()
            work(extra["forward"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            work(extra["loop"])


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=SHAPES)
    parser.add_argument("--extra", type=int, default=0)
    parser.add_argument("--where", choices=PLACES)
    parser.add_argument("--persistent", action="store_true")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
