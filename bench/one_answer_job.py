"""A small job for bench.one_answer: its samples wait, compute or both; prints its whole time."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from bench.service import serve

FILE_BYTES = 4_000_000


class Samples(Dataset[tuple[Tensor, int]]):
    """One sample: `--ways` are what it does, each for its milliseconds."""

    def __init__(self, args: argparse.Namespace, port: int, folder: str) -> None:
        self.args, self.port, self.folder = args, port, folder
        self.connection: Any = None

    def __len__(self) -> int:
        return int(self.args.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        for way in self.args.ways.split(","):
            name, _, length = way.partition("=")
            getattr(self, name)(float(length), index)
        return torch.full((32,), float(index % 7)), index % 2

    def sleep(self, length_ms: float, _: int) -> None:
        time.sleep(length_ms / 1e3)

    def compute(self, length_ms: float, _: int) -> None:
        end_s = time.thread_time() + length_ms / 1e3
        while time.thread_time() < end_s:
            pass

    def uneven(self, length_ms: float, index: int) -> None:
        """One sample in sixteen takes eight times as long."""
        time.sleep(length_ms * (8 if index % 16 == 0 else 0.5) / 1e3)

    def ask(self, _length_ms: float, index: int) -> None:
        if self.connection is None:
            import socket

            self.connection = socket.create_connection(("127.0.0.1", self.port))
        self.connection.sendall(index.to_bytes(8, "little"))
        self.connection.recv(64)

    def spawn(self, length_ms: float, _: int) -> None:
        subprocess.run(["/bin/sleep", str(length_ms / 1e3)], check=True)

    def read(self, _length_ms: float, index: int) -> None:
        path = Path(self.folder) / f"{index % 8}.bin"
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        while os.read(file, 1 << 18):
            pass
        os.close(file)


def main() -> None:
    """Train, and print how long all of it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ways", required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--step-ms", type=float, default=4.0, help="of the trainer, not on a core")
    parser.add_argument("--serve-ms", type=float, default=0.0)
    parser.add_argument("--serial", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    port, server = 0, None
    if args.serve_ms:
        ours, theirs = multiprocessing.Pipe()
        server = multiprocessing.Process(
            target=serve, args=(args.serve_ms, args.serial, theirs), daemon=True
        )
        server.start()
        port = ours.recv()
    with tempfile.TemporaryDirectory() as folder:
        if "read" in args.ways:
            for number in range(8):
                (Path(folder) / f"{number}.bin").write_bytes(os.urandom(FILE_BYTES))
            os.sync()
        print(json.dumps({"whole_s": train(args, Samples(args, port, folder))}), flush=True)
    if server is not None:
        server.terminate()


def train(args: argparse.Namespace, samples: Samples) -> float:
    """All epochs; seconds from the loader's construction to the end of the last one."""
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begun_s = time.perf_counter()
    more = {}
    if args.workers:
        more = {"prefetch_factor": args.prefetch, "persistent_workers": args.persistent}
    loader = DataLoader(samples, batch_size=8, num_workers=args.workers, **more)
    for _ in range(args.epochs):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            time.sleep(args.step_ms / 1e3)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return time.perf_counter() - begun_s


if __name__ == "__main__":
    main()
