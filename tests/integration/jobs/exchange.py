"""Two ranks exchange what pipelines, tensor parallelism and coalesced calls do; prints a digest.

`parallel`: a tensor-parallel model of DTensors. `stages`: a pipeline of two, by single and by
several sends. `together`: collectives that are made together at a block's end. Each ends with the
numbers that it computed, for both to be compared with a run without us.
"""

import os
import sys
import warnings

import torch
from torch import distributed as dist
from torch import nn

STEPS = 3


def train_parallel(rank: int) -> list[float]:
    """Columns of the first layer and rows of the second on either rank."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (2,))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        loss = model(torch.full((4, 8), float(step))).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    return losses


def train_stages(rank: int) -> list[float]:
    """What one stage computes the other one needs."""
    got = torch.zeros(4)
    sums = []
    for step in range(STEPS):
        sent = torch.full((4,), float(step + rank))
        if rank:
            dist.recv(got, 0)
            dist.isend(sent, 0).wait()
        else:
            dist.send(sent, 1)
            dist.irecv(got, 1).wait()
        operations = [dist.P2POp(dist.isend, sent, 1 - rank), dist.P2POp(dist.irecv, got, 1 - rank)]
        for handle in dist.batch_isend_irecv(operations):
            handle.wait()
        sums.append(float(got.sum()))
    return sums


def train_together(rank: int) -> list[float]:
    """Three all-reduces in one, with and without a handle."""
    sums = []
    for step in range(STEPS):
        parts = [torch.full((4,), float(step + rank + part)) for part in range(3)]
        with dist.distributed_c10d._coalescing_manager(async_ops=step == 1) as block:
            for part in parts:
                dist.all_reduce(part)
        if step == 1:
            block.wait()
        sums.append(float(sum(part.sum() for part in parts)))
    return sums


def main(kind: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    numbers = {"parallel": train_parallel, "stages": train_stages, "together": train_together}
    os.write(1, f"{rank} {kind} {numbers[kind](rank)}\n".encode())  # at once: ranks share a pipe
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
