"""Read JPEGs from tar shards in order, as webdataset does: an iterable dataset."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import trainer
from PIL import Image
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info


class Shards(IterableDataset[tuple[Tensor, int]]):
    """Every worker reads every n-th shard; the pictures come out in their order in the shard."""

    def __init__(self, folder: Path) -> None:
        self.shards = sorted(folder.glob("*.tar"))

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        worker = get_worker_info()
        mine = self.shards[worker.id :: worker.num_workers] if worker else self.shards
        for shard in mine:
            with tarfile.open(shard) as tar:
                for number, member in enumerate(tar):
                    file = tar.extractfile(member)
                    assert file is not None
                    yield decode(file.read()), number % 10


def decode(jpeg: bytes) -> Tensor:
    image = Image.open(io.BytesIO(jpeg))
    return torch.from_numpy(np.asarray(image.convert("RGB").crop((0, 0, 64, 64))).copy())


def main() -> None:
    args = trainer.options(__doc__).parse_args()
    trainer.train(trainer.make_loader(Shards(args.data), args), args)


if __name__ == "__main__":
    main()
