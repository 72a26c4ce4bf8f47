"""Samples from a service on this host that takes its time to answer, all at once or in turn."""

import argparse
import multiprocessing
import socket
import socketserver
import threading
import time
from typing import Any

import torch
import trainer
from torch import Tensor
from torch.utils.data import Dataset

ANSWER = bytes(range(64))


class Service(socketserver.ThreadingTCPServer):
    """Answers each request after a while; `turn` is held meanwhile if it serves one at a time."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer_s: float, *, is_serial: bool) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.answer_s = answer_s
        self.turn = threading.Semaphore(1 if is_serial else 1024)


class Answer(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        service: Any = self.server
        while self.request.recv(8):
            with service.turn:
                time.sleep(service.answer_s)
            self.request.sendall(ANSWER)


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


def serve(args: argparse.Namespace, found: Any) -> None:
    with Service(args.answer_ms / 1e3, is_serial=args.way == "serial") as service:
        found.send(service.server_address[1])
        service.serve_forever()


def main() -> None:
    parser = trainer.options(__doc__)
    parser.add_argument("--way", choices=("sleep", "together", "serial"), default="together")
    parser.add_argument("--answer-ms", type=float, default=8.0)
    parser.add_argument("--limit", type=int, default=240)
    args = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(args, theirs), daemon=True)
    process.start()
    trainer.train(trainer.make_loader(Asked(args, ours.recv()), args, shuffle=True), args)
    process.terminate()


if __name__ == "__main__":
    main()
