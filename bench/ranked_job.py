"""A job of gloo ranks under DDP with ten steps a second, the second rank late in each by 20 ms."""

import time

import torch
from torch import distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS = 300


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 1)
    )
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(STEPS * 16, 64))
    sampler = DistributedSampler(data, shuffle=False)
    for (batch,) in DataLoader(data, batch_size=8, sampler=sampler, num_workers=2):
        time.sleep(0.08 + 0.02 * dist.get_rank())
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
