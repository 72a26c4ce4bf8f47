"""A training script of three kinds for `bench.feed_accuracy`; with HAND it times its loader itself.

Called with the kind, a folder of files, and seconds.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset


class Computed(Dataset[torch.Tensor]):
    """Some CPU work a sample."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        row = torch.arange(4096, dtype=torch.float32) + index
        for _ in range(8):
            row = row.sin()
        return row


class Slept(Computed):
    """Waiting, as for a distant store."""

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.002)
        return torch.full((256,), float(index))


class Files(Computed):
    """Small files."""

    def __init__(self, folder: str) -> None:
        self.paths = sorted(Path(folder).iterdir())

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.frombuffer(bytearray(self.paths[index].read_bytes()), dtype=torch.uint8)


def make_loader(kind: str, folder: str) -> DataLoader[torch.Tensor]:
    if kind == "inline":
        return DataLoader(Computed(), 16, shuffle=True)
    if kind == "waiting":
        return DataLoader(Slept(), 8, shuffle=True, num_workers=4)
    return DataLoader(Files(folder), 32, shuffle=True, num_workers=1, persistent_workers=True)


def time_by_hand(loader: DataLoader[torch.Tensor], seconds: float) -> float:
    """Samples a second, epochs anew as needed, without the first batches."""
    skipped = loader.num_workers * (loader.prefetch_factor or 2) + 1
    taken = samples = 0
    start_s = 0.0
    while True:
        for batch in loader:
            taken += 1
            if taken <= skipped:
                start_s = time.perf_counter()
                continue
            samples += len(batch)
            elapsed_s = time.perf_counter() - start_s
            if elapsed_s >= seconds:
                return samples / elapsed_s


def main() -> None:
    kind, folder, seconds = sys.argv[1:]
    torch.set_num_threads(1)
    loader = make_loader(kind, folder)
    if os.environ.get("HAND"):
        print(time_by_hand(loader, float(seconds)))
        return
    model = torch.nn.Linear(4, 1)
    for batch in loader:
        model(batch.flatten()[:4].float()).sum().backward()
        raise SystemExit("the model was run")


if __name__ == "__main__":
    main()
