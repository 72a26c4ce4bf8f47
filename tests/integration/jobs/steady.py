"""Trains a tiny model with two workers until it is killed or its standard input ends."""

import select
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.002)
        return torch.full((4,), float(index % 7))


if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader: DataLoader[torch.Tensor] = DataLoader(
        Slow(), batch_size=8, num_workers=2, multiprocessing_context="fork"
    )
    for batch in loader:
        model(batch).mean().backward()
        optimizer.step()
        if select.select([sys.stdin], [], [], 0)[0]:
            break
