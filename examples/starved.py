"""A training job that starves its accelerator: one worker unpacks samples while a core is free.

    fuelline run examples/starved.py

Needs torch and numpy. The accelerator is emulated: 18 ms a step on no core. One worker needs about
twice as long for a batch; `--workers 2` is what would help.
"""

import argparse
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SIDE, BATCH, STEP_S = 256, 16, 0.018


class Pictures(Dataset[tuple[Tensor, int]]):
    """Compressed pictures on disk: unpacked, turned to floats and normalised by the worker."""

    def __init__(self, folder: Path, count: int) -> None:
        rng = np.random.default_rng(0)
        self.paths = [folder / f"{number:04}.z" for number in range(count)]
        for path in self.paths:
            pixels = rng.geometric(0.1, (SIDE, SIDE, 3)).astype(np.uint8)
            path.write_bytes(zlib.compress(pixels.tobytes(), 1))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels = np.frombuffer(zlib.decompress(self.paths[index].read_bytes()), np.uint8)
        picture = pixels.reshape(SIDE, SIDE, 3)[::4, ::4].astype(np.float32)
        return torch.from_numpy((picture - picture.mean()) / picture.std()), index % 10


class Accelerator(nn.Module):
    """Works for a set time on no core. The host goes on, and waits only for the step before."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.free_at_s = 0.0

    def forward(self, pictures: Tensor) -> Tensor:
        time.sleep(max(0.0, self.free_at_s - time.monotonic()))
        self.free_at_s = time.monotonic() + STEP_S
        return self.layer(pictures.flatten(1)[:, :64])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pictures = Pictures(Path(folder), count=320)
        loader = DataLoader(
            pictures, BATCH, shuffle=True, num_workers=args.workers, persistent_workers=True
        )
        model = Accelerator()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for epoch in range(args.epochs):
            for batch, labels in loader:
                loss = nn.functional.cross_entropy(model(batch), labels)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
