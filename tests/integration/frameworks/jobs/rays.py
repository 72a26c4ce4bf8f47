"""Ray Train on a cluster of this job's own: two workers, DDP, a prepared loader."""

import sys
from typing import Any

import ray
import torch
from data import Rows, make_model
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader


def train(_: Any) -> None:
    torch.set_num_threads(1)
    model = prepare_model(make_model())
    loader = prepare_data_loader(DataLoader(Rows(96), batch_size=4))
    optimizer = torch.optim.AdamW(model.parameters())
    for _epoch in range(2):
        for row, total in loader:
            mse_loss(model(row), total).backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            for row, _total in DataLoader(Rows(16), batch_size=4):
                model(row)


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, _temp_dir=sys.argv[1])
    TorchTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=sys.argv[2], name="rays"),
    ).fit()
