"""Trains with each way of loading and prints digests of all that a recording must not change."""

import hashlib
import json
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

SIZE = 48
WAYS: dict[str, dict[str, Any]] = {
    "inline": {"num_workers": 0},
    "fork": {"num_workers": 4, "multiprocessing_context": "fork"},
    "persistent": {
        "num_workers": 2,
        "multiprocessing_context": "fork",
        "persistent_workers": True,
    },
    "iterable-inline": {"num_workers": 0, "iterable": True},
    "iterable-fork": {"num_workers": 2, "multiprocessing_context": "fork", "iterable": True},
    "spawn": {"num_workers": 4, "multiprocessing_context": "spawn", "epochs": 1},
}


def draw(index: int) -> tuple[torch.Tensor, int]:
    noise = torch.rand(4) + random.random() + float(np.random.rand())
    return torch.full((4,), float(index)) + noise, index


class Rows(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return draw(index)


class Stream(IterableDataset[tuple[torch.Tensor, int]]):
    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        return map(draw, range(first, SIZE, step))


def digest(*things: Any) -> str:
    sha = hashlib.sha256()
    for thing in things:
        data = thing.detach().numpy().tobytes() if isinstance(thing, torch.Tensor) else repr(thing)
        sha.update(data if isinstance(data, bytes) else data.encode())
    return sha.hexdigest()[:16]


def train(*, iterable: bool = False, epochs: int = 2, **options: Any) -> dict[str, Any]:
    torch.manual_seed(1)
    random.seed(2)
    np.random.seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    dataset: Any = Stream() if iterable else Rows()
    loader: Any = DataLoader(dataset, batch_size=5, shuffle=not iterable, **options)
    order, batches = [], []
    for _ in range(epochs):
        for number, (rows, indices) in enumerate(loader):
            order.append(indices.tolist())
            batches.append(rows)
            (model(rows).square().mean() / 2).backward()
            if number % 2:
                optimizer.step()
                optimizer.zero_grad()
    return {
        "weights": digest(*model.parameters()),
        "batches": digest(*batches),
        "order": order,
        "random": digest(torch.get_rng_state(), random.getstate(), np.random.get_state()),
    }


if __name__ == "__main__":
    names = sys.argv[1:] or list(WAYS)
    sys.stdout.write(json.dumps({name: train(**WAYS[name]) for name in names}) + "\n")
