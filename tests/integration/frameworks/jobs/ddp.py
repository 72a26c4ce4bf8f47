"""A plain loop with DDP on gloo, as torchrun starts it."""

import argparse

import torch
from data import Rows, answer, digest, make_model
from torch import distributed
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=1)
options = parser.parse_args()

torch.set_num_threads(1)
distributed.init_process_group("gloo")
rows = Rows(96)
sampler: DistributedSampler[Rows] = DistributedSampler(rows)
train = DataLoader(rows, batch_size=4, sampler=sampler)
validation = DataLoader(Rows(16), batch_size=4)
model = DistributedDataParallel(make_model())
optimizer = torch.optim.AdamW(model.parameters())
steps = 0
for epoch in range(2):
    sampler.set_epoch(epoch)
    for number, (row, total) in enumerate(train, 1):
        mse_loss(model(row), total).backward()
        if number % options.accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
    with torch.no_grad():
        for row, _ in validation:
            model(row)
if distributed.get_rank() == 0:
    answer(steps=steps, weights=digest(model))
distributed.destroy_process_group()
