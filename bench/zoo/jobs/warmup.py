"""Token windows whose first use builds an index: the first batch is slow, all others are not."""

from pathlib import Path

import numpy as np
import trainer
from tokens import Windows
from torch import Tensor


class Indexed(Windows):
    """Every worker sorts the token file's head once, when it is first asked for a sample."""

    def __init__(self, folder: Path, million_tokens: int) -> None:
        super().__init__(folder, 1024, None)
        self.head = million_tokens * 1_000_000
        self.order: np.ndarray | None = None

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if self.order is None:
            self.order = np.argsort(self.tokens[: self.head])
        window: tuple[Tensor, int] = super().__getitem__(index)
        return window


def main() -> None:
    parser = trainer.options(__doc__)
    parser.add_argument("--index-millions", type=int, default=12, help="tokens sorted at first")
    args = parser.parse_args()
    dataset = Indexed(args.data, args.index_millions)
    trainer.train(trainer.make_loader(dataset, args, shuffle=True), args)


if __name__ == "__main__":
    main()
