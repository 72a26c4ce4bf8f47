"""Samples from a service on this host that takes its time to answer, all at once or in turn."""

import argparse
import multiprocessing
import socket
import time

import torch
import trainer
from bench.service import ANSWER, serve
from torch import Tensor
from torch.utils.data import Dataset


class Asked(Dataset[tuple[Tensor, int]]):
    """Each sample is one request; the client sleeps itself where it has no service."""

    def __init__(self, args: argparse.Namespace, port: int) -> None:
        self.args = args
        self.port = port
        self.connection: socket.socket | None = None

    def __len__(self) -> int:
        return int(self.args.limit)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if self.args.way == "sleep":
            time.sleep(self.args.answer_ms / 1e3)
            return torch.tensor(list(ANSWER), dtype=torch.float32), index % 10
        if self.connection is None:
            self.connection = socket.create_connection(("127.0.0.1", self.port))
        self.connection.sendall(index.to_bytes(8, "little"))
        answer = self.connection.recv(len(ANSWER))
        return torch.tensor(list(answer), dtype=torch.float32), index % 10


def main() -> None:
    parser = trainer.options(__doc__)
    parser.add_argument("--way", choices=("sleep", "together", "serial"), default="together")
    parser.add_argument("--answer-ms", type=float, default=8.0)
    parser.add_argument("--limit", type=int, default=240)
    args = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(
        target=serve, args=(args.answer_ms, args.way == "serial", theirs), daemon=True
    )
    process.start()
    trainer.train(trainer.make_loader(Asked(args, ours.recv()), args, shuffle=True), args)
    process.terminate()


if __name__ == "__main__":
    main()
