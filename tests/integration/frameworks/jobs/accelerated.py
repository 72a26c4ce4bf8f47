"""Accelerate's own loop: prepared loaders, accumulation, evaluation, skipped batches."""

import argparse
from typing import Any

import torch
from accelerate import Accelerator, DataLoaderConfiguration, skip_first_batches
from data import Rows, Stream, answer, digest, make_model
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--skip", type=int, default=0)
parser.add_argument("--stream", action="store_true")
parser.add_argument("--stateful", action="store_true")
parser.add_argument("--sleep", type=float, default=0.0)
parser.add_argument("--evaluate-every", type=int, default=1000)
options = parser.parse_args()

config = DataLoaderConfiguration(use_stateful_dataloader=options.stateful)
accelerator = Accelerator(
    cpu=True, gradient_accumulation_steps=options.accumulate, dataloader_config=config
)
dataset: Any = (Stream if options.stream else Rows)(80, options.sleep)
network = make_model()
model, optimizer, train, validation = accelerator.prepare(
    network,
    torch.optim.AdamW(network.parameters(), lr=1e-3),
    DataLoader(dataset, batch_size=4),
    DataLoader(Rows(16), batch_size=4),
)


def evaluate() -> None:
    model.eval()
    for row, total in validation:  # gradients are on while a batch is taken
        with torch.no_grad():
            mse_loss(model(row), total)
    model.train()


batches = steps = 0
for epoch in range(2):
    loader = skip_first_batches(train, options.skip) if options.skip and not epoch else train
    for number, (row, total) in enumerate(loader):
        if number % options.evaluate_every == 0:
            evaluate()
        with accelerator.accumulate(model):
            accelerator.backward(mse_loss(model(row), total))
            optimizer.step()
            optimizer.zero_grad()
        batches += 1
        steps += accelerator.sync_gradients
if accelerator.is_main_process:
    answer(steps=steps, batches=batches, weights=digest(model))
