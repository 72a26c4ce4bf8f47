"""A loop that waits for its samples; nothing needs a core, so that it runs alike everywhere."""

import sys
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset[Any]):
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.01)
        return torch.full((4,), float(index % 7)), index % 2


def main(seconds: float) -> None:
    torch.set_num_threads(1)
    loader = DataLoader(Slow(), batch_size=2, num_workers=1)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    started = time.monotonic()
    for inputs, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        time.sleep(0.002)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if time.monotonic() - started > seconds:
            break


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0)
