"""Reads a folder of pictures with a loader, epoch by epoch, for `bench.cache_epoch`.

Called with the folder, the number of epochs and of workers; prints images a second of each epoch.
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


class Pictures(Dataset[torch.Tensor]):
    """Decoded and made small, as for a classifier."""

    def __init__(self, folder: str) -> None:
        self.paths = sorted(Path(folder).rglob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self.paths[index]) as image:
            return torch.from_numpy(np.array(image.convert("RGB").resize((224, 224))))


def main() -> None:
    folder, epochs, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    loader = DataLoader(
        Pictures(folder), 16, shuffle=True, num_workers=workers, persistent_workers=True
    )
    rates = []
    for _ in range(epochs):
        start = time.perf_counter()
        count = sum(len(batch) for batch in loader)
        rates.append(count / (time.perf_counter() - start))
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
