"""Samples with annotations: nested Python objects, pickled to the trainer, or a slow collate."""

import random
from typing import Any

import torch
import trainer
from torch import Tensor
from torch.utils.data import Dataset

Sample = dict[str, Any]


class Annotated(Dataset[Sample]):
    """Cheap to fetch: a few boxes, built once and only referred to."""

    def __init__(self, count: int, boxes: int) -> None:
        rng = random.Random(0)
        self.boxes = [
            [
                {"xy": (rng.random(), rng.random()), "tags": [f"tag{rng.randrange(10**9)}"]}
                for _ in range(boxes)
            ]
            for _ in range(64)
        ]
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        return {
            "vector": torch.full((64,), index % 7),
            "boxes": self.boxes[index % 64],
            "label": index % 10,
        }


def keep_objects(samples: list[Sample]) -> tuple["Batch", Tensor]:
    """Leaves the annotations as they are: the queue pickles every one of them."""
    return Batch(stack(samples), [s["boxes"] for s in samples]), labels(samples)


def flatten_slowly(samples: list[Sample]) -> tuple[Tensor, Tensor]:
    """Pads annotations to a grid in pure Python, value by value."""
    longest = max(len(sample["boxes"]) for sample in samples)
    grid = [[0.0] * longest for _ in samples]
    for row, sample in enumerate(samples):
        for column, box in enumerate(sample["boxes"]):
            x, y = box["xy"]
            tag = sum(ord(char) for char in box["tags"][0]) / 1000
            grid[row][column] = max(0.0, min(1.0, (x * y + x + y) / 3 + tag))
    return torch.cat([stack(samples).float(), torch.tensor(grid)[:, :8]], dim=1), labels(samples)


class Batch:
    """A batch as detection code writes it: a tensor and lists of Python objects."""

    def __init__(self, vectors: Tensor, boxes: list[Any]) -> None:
        self.vectors = vectors
        self.boxes = boxes

    def __len__(self) -> int:
        return len(self.vectors)

    def flatten(self, start: int) -> Tensor:
        return self.vectors.flatten(start)


def stack(samples: list[Sample]) -> Tensor:
    return torch.stack([sample["vector"] for sample in samples])


def labels(samples: list[Sample]) -> Tensor:
    return torch.tensor([sample["label"] for sample in samples])


def main() -> None:
    parser = trainer.options(__doc__)
    parser.add_argument("--boxes", type=int, default=400, help="annotations per sample")
    parser.add_argument("--collate", choices=["keep", "slow"], default="keep")
    args = parser.parse_args()
    collate = keep_objects if args.collate == "keep" else flatten_slowly
    dataset = Annotated(100_000, args.boxes)
    trainer.train(trainer.make_loader(dataset, args, collate_fn=collate), args)


if __name__ == "__main__":
    main()
