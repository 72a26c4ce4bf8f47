"""Many small files: each sample is a few features, each in a file of its own."""

from pathlib import Path

import numpy as np
import torch
import trainer
from torch import Tensor
from torch.utils.data import Dataset


class Features(Dataset[tuple[Tensor, int]]):
    def __init__(self, folder: Path, per_sample: int) -> None:
        self.paths = sorted(folder.glob("*.bin"))
        self.per_sample = per_sample

    def __len__(self) -> int:
        return len(self.paths) // self.per_sample

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        mine = self.paths[index * self.per_sample : (index + 1) * self.per_sample]
        joined = b"".join(path.read_bytes() for path in mine)
        return torch.from_numpy(np.frombuffer(joined, np.uint8)[:1024].copy()), index % 10


def main() -> None:
    parser = trainer.options(__doc__)
    parser.add_argument("--per-sample", type=int, default=2, help="files that make a sample")
    args = parser.parse_args()
    dataset = Features(args.data, args.per_sample)
    trainer.train(trainer.make_loader(dataset, args, shuffle=True), args)


if __name__ == "__main__":
    main()
