"""A job of several gloo ranks: DDP or FSDP, and the collectives that people call themselves."""

import hashlib
import os
import sys

import torch
from torch import distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS = 6


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 1)
    )


def wrap(kind: str) -> torch.nn.Module:
    model = make_model()
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    return fully_shard(torch.nn.Sequential(model[0], model[2]))


def train(model: torch.nn.Module) -> None:
    data = TensorDataset(torch.linspace(0, 1, STEPS * 4 * 2 * 8).reshape(-1, 8))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (batch,) in loader:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def call_everything() -> list[float]:
    """Each collective once, one of them asynchronously, in a group of its own."""
    group = dist.new_group()
    whole = torch.ones(4) * (dist.get_rank() + 1)
    handle = dist.all_reduce(whole, group=group, async_op=True)
    handle.wait()
    parts = [torch.zeros(4) for _ in range(2)]
    dist.all_gather(parts, whole)
    dist.broadcast(whole, src=0)
    dist.barrier()
    return [float(part.sum()) for part in [whole, *parts]]


def digest(model: torch.nn.Module) -> str:
    state = model.state_dict()
    parts = [getattr(each, "to_local", lambda each=each: each)() for each in state.values()]
    return hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    model = wrap(sys.argv[1])
    train(model)
    answer = f"{dist.get_rank()} {digest(model)} {call_everything()}\n"
    os.write(1, answer.encode())
    if sys.argv[2:] == ["killed"] and dist.get_rank() == 1:
        os.kill(os.getpid(), 9)
    dist.destroy_process_group()
