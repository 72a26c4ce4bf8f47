"""Forty steps of a layer of 64 by 64, and what came of it to the last bit."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    for (batch,) in DataLoader(TensorDataset(torch.randn(80, 64)), batch_size=8):
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
sys.stdout.write(f"{model.weight.sum().item().hex()}\n")
