"""Train a classifier on a folder of JPEGs. An ordinary script: nothing in it knows of Fuelline.

    python examples/make_data.py images data/images
    fuelline run examples/train_images.py --data data/images --workers 1

The accelerator is emulated (see emulated.py), so that the script shows on any machine what it would
show beside a GPU.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from emulated import Device, Net


class Images(Dataset[tuple[Tensor, int]]):
    """One folder a class, as torchvision's ImageFolder has it."""

    def __init__(self, folder: Path, side: int = 224) -> None:
        self.paths = sorted(folder.glob("*/*.jpg"))
        self.labels = sorted({path.parent.name for path in self.paths})
        self.side = side

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path = self.paths[index]
        with Image.open(path) as image:
            pixels = np.array(image.convert("RGB").resize((self.side, self.side)))
        return torch.from_numpy(pixels).permute(2, 0, 1), self.labels.index(path.parent.name)


def train_epoch(model: nn.Module, loader: DataLoader[tuple[Tensor, Tensor]]) -> float:
    """One pass over the data; the last loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device-ms", type=float, default=2.0, help="device time per image")
    args = parser.parse_args()
    torch.manual_seed(0)
    device = Device(sample_ms=args.device_ms)
    model = Net(device)
    loader = DataLoader(Images(args.data), args.batch, shuffle=True, num_workers=args.workers)
    for epoch in range(args.epochs):
        start_s = time.monotonic()
        loss = train_epoch(model, loader)
        rate = len(loader.dataset) / (time.monotonic() - start_s)
        print(f"epoch {epoch} loss {loss:.3f} {rate:.0f} images/s", flush=True)
    print(f"the device was busy {device.busy_frac():.0%} of the time")


if __name__ == "__main__":
    main()
