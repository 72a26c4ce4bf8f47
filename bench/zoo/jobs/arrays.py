"""Arrays compressed with zstd, one file each: decompress, then pool to a feature vector."""

from pathlib import Path

import numpy as np
import torch
import trainer
import zstandard
from torch import Tensor
from torch.utils.data import Dataset


class Arrays(Dataset[tuple[Tensor, int]]):
    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.zst"))

    def __len__(self) -> int:
        return 20 * len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        frame = self.paths[index % len(self.paths)].read_bytes()
        array = np.frombuffer(zstandard.ZstdDecompressor().decompress(frame), np.uint8)
        return torch.from_numpy(array[:1024].copy()), index % 10


def main() -> None:
    args = trainer.options(__doc__).parse_args()
    trainer.train(trainer.make_loader(Arrays(args.data), args, shuffle=True), args)


if __name__ == "__main__":
    main()
