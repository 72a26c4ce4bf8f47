"""Real models on the CPU, a convolutional net, or a chain of many tiny operations.

The chain runs on bench/emu where the zoo was asked for that device; the net has none.
"""

import os

import torch
import trainer
from torch import Tensor, nn
from torch.utils.data import TensorDataset


class Chain(nn.Module):
    """Two hundred layers of eight features: all cost is in starting operations."""

    def __init__(self, depth: int = 200) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(depth))
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)[:, :8]
        for layer in self.layers:
            x = x + torch.tanh(layer(x)) * 0.1
        return self.head(x)


def conv_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def main() -> None:
    parser = trainer.options(__doc__)
    parser.add_argument("--model", choices=["chain", "conv"], default="conv")
    parser.add_argument("--count", type=int, default=1000, help="samples in an epoch")
    args = parser.parse_args()
    model = conv_net() if args.model == "conv" else Chain()
    if args.model == "chain" and os.environ.get("ZOO_DEVICE") == "emu":
        import bench.emu  # noqa: F401 - registers the device

        model.to("emu")
    images = torch.randn(args.count, 3, 48, 48)
    dataset = TensorDataset(images, torch.arange(args.count) % 10)
    trainer.run(model, trainer.make_loader(dataset, args, shuffle=True), args.seconds)


if __name__ == "__main__":
    main()
