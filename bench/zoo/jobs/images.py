"""Classify a folder of JPEGs: Pillow decodes, a crop is taken, a map-style dataset."""

import random
from pathlib import Path

import numpy as np
import torch
import trainer
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset


class Images(Dataset[tuple[Tensor, int]]):
    def __init__(self, folder: Path, limit: int, init_copies: int) -> None:
        self.paths = sorted(folder.glob("class*/*.jpg"))
        random.Random(0).shuffle(self.paths)
        self.paths = self.paths[:limit]
        self.init_copies = init_copies

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path = self.paths[index]
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB").crop((0, 0, 64, 64)))
        return torch.from_numpy(pixels.copy()), int(path.parent.name[5:])

    def build_tables(self, _worker: int) -> None:
        """Lookup tables that a careless worker_init_fn builds anew in every epoch."""
        self.tables = [{n: str(n) for n in range(1000)} for _ in range(self.init_copies)]


def main() -> None:
    parser = trainer.options(__doc__)
    parser.add_argument("--limit", type=int, default=None, help="use only so many images")
    parser.add_argument("--init-tables", type=int, default=0, help="tables built per worker")
    parser.add_argument("--drop-last", action="store_true")
    args = parser.parse_args()
    images = Images(args.data, args.limit, args.init_tables)
    init = images.build_tables if args.init_tables else None
    loader = trainer.make_loader(
        images, args, shuffle=True, drop_last=args.drop_last, worker_init_fn=init
    )
    trainer.train(loader, args)


if __name__ == "__main__":
    main()
