"""Token windows, well fed, and a loop that stops between steps: what it does there is an option."""

import gc
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import trainer
from tokens import Windows
from torch import nn
from torch.utils.data import DataLoader


class Checkpoint:
    """Saves model and optimizer state, here 160 MB of it."""

    def __init__(self, folder: Path, _data: Path) -> None:
        self.target = folder / "checkpoint.pt"
        self.moments = torch.zeros(40_000_000)

    def __call__(self, step: int, model: nn.Module) -> None:
        torch.save({"step": step, "model": model.state_dict(), "adam": self.moments}, self.target)


class Validation:
    """Scores a validation set and works out a ranking metric on the host."""

    def __init__(self, _folder: Path, data: Path) -> None:
        self.loader = DataLoader(Windows(data, 1024, 64), batch_size=16)

    @torch.no_grad()
    def __call__(self, step: int, model: nn.Module) -> None:
        model.eval()
        scores = [
            (float(s), int(y))
            for x, ys in self.loader
            for s, y in zip(model(x)[:, 0], ys, strict=True)
        ]
        wins = sum(a > b for a, ya in scores * 24 for b, yb in scores * 24 if ya > yb)
        model.train()
        print(f"step {step} ranking {wins / 576 / len(scores) ** 2:.3f}", flush=True)


class Logging:
    """Writes all weights' histograms as JSON after each step, safely: fsync and rename."""

    def __init__(self, folder: Path, _data: Path) -> None:
        self.folder = folder
        self.history: list[dict[str, list[float]]] = []

    def __call__(self, step: int, model: nn.Module) -> None:
        named = {
            name: weight.detach().flatten().tolist() for name, weight in model.named_parameters()
        }
        self.history = [*self.history[-3:], named]
        with (self.folder / "metrics.partial").open("w") as file:
            json.dump({"step": step, "history": self.history}, file)
            file.flush()
            os.fsync(file.fileno())
        (self.folder / "metrics.partial").rename(self.folder / "metrics.json")


class Garbage:
    """Keeps hundreds of thousands of objects alive and collects garbage by hand."""

    def __init__(self, _folder: Path, _data: Path) -> None:
        self.alive = [[n] for n in range(300_000)]

    def __call__(self, step: int, model: nn.Module) -> None:
        gc.collect()


PAUSES: dict[str, Callable[[Path, Path], trainer.AfterStep]] = {
    "checkpoint": Checkpoint,
    "garbage": Garbage,
    "logging": Logging,
    "none": lambda _folder, _data: lambda _step, _model: None,
    "validation": Validation,
}


def main() -> None:
    parser = trainer.options(__doc__)
    parser.add_argument("--pause", choices=sorted(PAUSES), default="none")
    parser.add_argument("--every", type=int, default=1, help="steps between pauses")
    args = parser.parse_args()
    loader = trainer.make_loader(Windows(args.data, 1024, None), args, shuffle=True)
    with tempfile.TemporaryDirectory(dir=args.data.parent) as folder:
        pause = PAUSES[args.pause](Path(folder), args.data)

        def after_step(step: int, model: nn.Module) -> None:
            if step % args.every == 0:
                pause(step, model)

        trainer.train(loader, args, after_step)


if __name__ == "__main__":
    main()
