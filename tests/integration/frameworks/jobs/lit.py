"""Lightning's Trainer: validation, accumulation, checkpoints, several loaders, resumption."""

import argparse
from typing import Any

import lightning
import torch
from data import Rows, Stream, answer, digest, make_model
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("out")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--sleep", type=float, default=0.0)
parser.add_argument("--stream", action="store_true")
parser.add_argument("--two", action="store_true")
parser.add_argument("--iterator", action="store_true")
parser.add_argument("--resume")
options = parser.parse_args()


class Net(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = make_model()

    def loss(self, batch: Any) -> torch.Tensor:
        parts = batch.values() if isinstance(batch, dict) else (batch,)
        return sum((mse_loss(self.net(row), total) for row, total in parts), torch.zeros(()))

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, number: int) -> None:
        self.log("validation", self.loss(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class TakingNet(Net):
    """Takes its batches itself, inside the optimizer's closure, as large frameworks do."""

    def training_step(self, dataloader_iter: Any) -> torch.Tensor:  # type: ignore[override]
        batch, *_ = next(dataloader_iter)
        loss = self.loss(batch)
        self.log("loss", loss, batch_size=4)
        return loss


def make_loader() -> DataLoader[Any]:
    dataset: Any = (Stream if options.stream else Rows)(80, options.sleep)
    return DataLoader(dataset, batch_size=4)


lightning.seed_everything(3, verbose=False)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=1,
    max_epochs=2,
    accumulate_grad_batches=options.accumulate,
    callbacks=[ModelCheckpoint(options.out, every_n_train_steps=4, save_top_k=-1)],
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=options.out,
)
net = TakingNet() if options.iterator else Net()
train: Any = {"a": make_loader(), "b": make_loader()} if options.two else make_loader()
trainer.fit(net, train, DataLoader(Rows(16), batch_size=4), ckpt_path=options.resume)
loss = float(trainer.callback_metrics["loss"])
answer(steps=trainer.global_step, loss=loss, weights=digest(net))
