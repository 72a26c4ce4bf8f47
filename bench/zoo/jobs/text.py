"""Lines of JSON, plain or gzip, hashed to n-grams in pure Python: map-style or iterable."""

import gzip
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import torch
import trainer
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

BUCKETS = 4096


class Documents(Dataset[tuple[Tensor, int]]):
    """The lines of one file, held in memory; a few of them may be far longer than the rest."""

    def __init__(self, folder: Path, ngrams: int, long_every: int, limit: int | None) -> None:
        with (folder / "text.jsonl").open("rb") as file:
            self.lines = list(itertools.islice(file, limit))
        self.ngrams = ngrams
        self.long_every = long_every

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        document = json.loads(self.lines[index])
        is_long = self.long_every and index % self.long_every == 0
        text = document["text"] * (24 if is_long else 1)
        return hash_ngrams(text, self.ngrams), document["label"]


class Stream(IterableDataset[tuple[Tensor, int]]):
    """The lines of gzip shards, every worker with shards of its own."""

    def __init__(self, folder: Path, ngrams: int) -> None:
        self.shards = sorted(folder.glob("*.jsonl.gz"))
        self.ngrams = ngrams

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        worker = get_worker_info()
        for shard in self.shards[worker.id :: worker.num_workers] if worker else self.shards:
            with gzip.open(shard) as lines:
                for line in lines:
                    document = json.loads(line)
                    yield hash_ngrams(document["text"], self.ngrams), document["label"]


def hash_ngrams(text: str, longest: int) -> Tensor:
    """Counts of character n-grams by hash bucket, one character at a time."""
    counts = [0] * BUCKETS
    for size in range(1, longest + 1):
        for start in range(len(text) - size + 1):
            value = 0
            for char in text[start : start + size]:
                value = (value * 31 + ord(char)) % BUCKETS
            counts[value] += 1
    return torch.tensor(counts[:128])


def main() -> None:
    parser = trainer.options(__doc__)
    parser.add_argument("--ngrams", type=int, default=2, help="longest n-gram")
    parser.add_argument("--long-every", type=int, default=0, help="every n-th document is long")
    parser.add_argument("--limit", type=int, default=None, help="use only so many documents")
    parser.add_argument("--stream", action="store_true", help="gzip shards as an iterable")
    args = parser.parse_args()
    dataset = (
        Stream(args.data, args.ngrams)
        if args.stream
        else Documents(args.data, args.ngrams, args.long_every, args.limit)
    )
    trainer.train(trainer.make_loader(dataset, args), args)


if __name__ == "__main__":
    main()
