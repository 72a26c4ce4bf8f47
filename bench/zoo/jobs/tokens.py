"""Windows of token ids from one memory-mapped file, as small language-model trainers read them."""

import mmap
from pathlib import Path

import numpy as np
import torch
import trainer
from torch import Tensor
from torch.utils.data import Dataset


class Windows(Dataset[tuple[Tensor, int]]):
    def __init__(
        self,
        folder: Path,
        length: int,
        count: int | None,
        *,
        scan: bool = False,
        sparse: bool = False,
    ) -> None:
        self.tokens = np.memmap(folder / "tokens.bin", np.uint16, mode="r")
        self.length = length
        self.count = count or len(self.tokens) // length
        if scan:
            print(f"vocabulary of {self.tokens[: self.count * length].max() + 1} tokens")
        if sparse:  # no read-ahead: windows are far apart
            mapped: mmap.mmap = vars(self.tokens)["_mmap"]
            mapped.madvise(mmap.MADV_RANDOM)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        window = self.tokens[index * self.length : (index + 1) * self.length]
        return torch.from_numpy(window.astype(np.int32)), index % 10


def main() -> None:
    parser = trainer.options(__doc__)
    parser.add_argument("--length", type=int, default=1024, help="tokens in a window")
    parser.add_argument("--count", type=int, default=None, help="windows in an epoch")
    parser.add_argument("--scan", action="store_true", help="look at all tokens once at first")
    parser.add_argument("--sparse", action="store_true", help="ask for no read-ahead")
    args = parser.parse_args()
    dataset = Windows(args.data, args.length, args.count, scan=args.scan, sparse=args.sparse)
    trainer.train(trainer.make_loader(dataset, args, shuffle=True), args)


if __name__ == "__main__":
    main()
