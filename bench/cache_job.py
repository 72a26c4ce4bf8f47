"""Reads the same pictures from two folders in turns, a batch each, for `bench.cache_epoch`.

Called with both folders; prints the seconds of each turn of the second epoch, as a list of pairs.
No workers: what they fetch ahead in the other folder's turn would not be in their own.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

BATCH = 16


class Pictures(Dataset[torch.Tensor]):
    """Decoded and made small, as for a classifier."""

    def __init__(self, folder: str) -> None:
        self.paths = sorted(Path(folder).rglob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self.paths[index]) as image:
            return torch.from_numpy(np.array(image.convert("RGB").resize((224, 224))))


def run_epoch(loaders: list[DataLoader[torch.Tensor]]) -> list[list[float]]:
    """Seconds of each loader's batches, turn by turn; who is first changes each turn."""
    iterators = [iter(loader) for loader in loaders]
    turns = []
    for turn in range(len(loaders[0])):
        took = [0.0] * len(iterators)
        for place in range(len(iterators)):
            which = (turn + place) % len(iterators)
            start = time.perf_counter()
            next(iterators[which])
            took[which] = time.perf_counter() - start
        turns.append(took)
    return turns


def main() -> None:
    torch.set_num_threads(1)
    loaders = [
        DataLoader(Pictures(folder), BATCH, shuffle=True, drop_last=True) for folder in sys.argv[1:]
    ]
    run_epoch(loaders)
    print(json.dumps(run_epoch(loaders)))


if __name__ == "__main__":
    main()
