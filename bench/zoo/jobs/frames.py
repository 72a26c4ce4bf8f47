"""Frames that are only moved: a large one through two buffers of each worker, then a crop of it."""

import numpy as np
import torch
import trainer
from torch import Tensor
from torch.utils.data import Dataset

CROP = 4096


class Frames(Dataset[tuple[Tensor, int]]):
    """Every byte is written and read again, and nothing is computed from it."""

    def __init__(self, count: int, frame_bytes: int, passes: int) -> None:
        self.count = count
        self.values = frame_bytes // 4
        self.passes = passes
        self.front = self.back = np.empty(0, np.float32)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not self.front.size:  # in the worker: each has its own
            self.front = np.ones(self.values, np.float32)
            self.back = np.ones(self.values, np.float32)
        for _ in range(self.passes):
            np.copyto(self.back, self.front)
            self.front, self.back = self.back, self.front
        return torch.from_numpy(self.front[:CROP].copy()), index % 10


def main() -> None:
    parser = trainer.options(__doc__)
    parser.add_argument("--frame-kb", type=int, default=8192, help="size of a frame")
    parser.add_argument("--passes", type=int, default=4, help="times that a frame is moved")
    parser.add_argument("--count", type=int, default=60, help="samples of an epoch")
    args = parser.parse_args()
    frames = Frames(args.count, args.frame_kb << 10, args.passes)
    trainer.train(trainer.make_loader(frames, args), args)


if __name__ == "__main__":
    main()
