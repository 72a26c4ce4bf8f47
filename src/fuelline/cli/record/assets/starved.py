"""A starved job: an accelerator that could take 80 batches a second and gets a fraction of that.

One loader worker unpacks and augments every image; the emulated accelerator needs 12 ms a step and
occupies no core. Everything it needs is made here: no data, no GPU.
"""

import argparse
import time
import zlib

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SIDE = 96


class PackedImages(Dataset):
    """Images that are stored compressed in memory, unpacked and augmented on access."""

    def __init__(self, count: int) -> None:
        random = np.random.default_rng(0)
        noise = random.integers(0, 8, (16, SIDE, SIDE, 3), dtype=np.uint8)
        self.packed = [zlib.compress(image.tobytes()) for image in noise]
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        raw = zlib.decompress(self.packed[index % len(self.packed)])
        image = np.frombuffer(raw, np.uint8).reshape(SIDE, SIDE, 3)
        return torch.from_numpy(augment(image)), index % 10


def augment(image: np.ndarray) -> np.ndarray:
    """Blur and normalise, the slow way."""
    blurred = image.astype(np.float32)
    for axis in (0, 1) * 16:
        blurred = (np.roll(blurred, 1, axis) + blurred + np.roll(blurred, -1, axis)) / 3
    return ((blurred - blurred.mean()) / (blurred.std() + 1e-6)).transpose(2, 0, 1)


class EmulatedAccelerator(torch.nn.Module):
    """A small real model in front of a step time that occupies no core."""

    def __init__(self, step_ms: float) -> None:
        super().__init__()
        self.head = torch.nn.Linear(3, 10)
        self.step_s = step_ms / 1000

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        time.sleep(self.step_s)
        return self.head(images.mean((2, 3)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--step-ms", type=float, default=12.0)
    options = parser.parse_args()
    torch.set_num_threads(1)  # the accelerator does the work, not the host's cores
    loader = DataLoader(PackedImages(8 * options.steps), batch_size=8, num_workers=options.workers)
    model = EmulatedAccelerator(options.step_ms)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    started = time.perf_counter()
    for step, (images, labels) in enumerate(loader, start=1):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            rate = 8 * step / (time.perf_counter() - started)
            print(f"step {step:4}  loss {loss.item():.3f}  {rate:.0f} images/s", flush=True)


if __name__ == "__main__":
    main()
