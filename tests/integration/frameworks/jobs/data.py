"""Generated rows, a tiny model and a digest of it: what all jobs of this folder train on."""

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset

FEATURES = 16


class Rows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, count: int, sleep_s: float = 0.0) -> None:
        self.count, self.sleep_s = count, sleep_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(self.sleep_s)
        row = torch.rand(FEATURES, generator=torch.Generator().manual_seed(index))
        return row, row.sum(0, keepdim=True)


class Stream(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, count: int, sleep_s: float = 0.0) -> None:
        self.rows = Rows(count, sleep_s)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return (self.rows[index] for index in range(len(self.rows)))


class Tokens(Rows):
    """The same as text: a causal language model learns to copy it."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.sleep_s)
        tokens = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    hidden = torch.nn.Linear(FEATURES, 64)
    return torch.nn.Sequential(
        hidden, torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1)
    )


def digest(model: torch.nn.Module) -> str:
    sha = hashlib.sha256()
    for weights in model.parameters():
        sha.update(weights.detach().numpy().tobytes())
    return sha.hexdigest()


def answer(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
