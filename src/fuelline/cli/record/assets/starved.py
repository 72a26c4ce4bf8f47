"""A starved job: an accelerator that could take twice the batches that it gets.

One loader worker unpacks and augments every image; the emulated accelerator needs half of that time
for a step, on any machine, and occupies no core. Everything it needs is made here: no data, no GPU.
"""

import argparse
import time
import zlib

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SIDE = 96
BATCH = 8


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


def time_batch(images: PackedImages) -> float:
    """How many milliseconds one core prepares a batch for; the quickest of some, undisturbed."""
    taken = []
    for _ in range(5):
        started = time.perf_counter()
        for index in range(BATCH):
            images[index]
        taken.append(time.perf_counter() - started)
    return 1000 * min(taken)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--step-ms", type=float, help="default: half of what a batch takes")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the accelerator does the work, not the host's cores
    images = PackedImages(BATCH * options.steps)
    model = EmulatedAccelerator(options.step_ms or time_batch(images) / 2)
    loader = DataLoader(images, batch_size=BATCH, num_workers=options.workers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    started = time.perf_counter()
    for step, (images, labels) in enumerate(loader, start=1):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            rate = BATCH * step / (time.perf_counter() - started)
            print(f"step {step:4}  loss {loss.item():.3f}  {rate:.0f} images/s", flush=True)


if __name__ == "__main__":
    main()
