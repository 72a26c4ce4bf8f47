"""Training with workers that computes the same numbers each time, to be attached to.

    python bench/attach_job.py STEPS

Its last line is a hash of all parameters, and the CPU time of the process.
"""

import hashlib
import sys
import time
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset[Any]):
    """Samples that follow from their number alone."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        drawn = torch.Generator().manual_seed(index)
        return torch.randn(128, generator=drawn), index % 10


def main(steps: int) -> None:
    """Train for so many steps."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    done, began_s = 0, time.process_time()
    while done < steps:
        for inputs, labels in DataLoader(Noise(), batch_size=32, num_workers=2, shuffle=True):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.01)
            done += 1
            if done == steps:
                break
    content = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    print(hashlib.sha256(content).hexdigest(), f"{time.process_time() - began_s:.2f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
