"""What a sample costs, for jobs that bring their own source; no framework is loaded for it."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

FEATURES = 64


def read(path: Path) -> np.ndarray:
    """A file from its disk."""
    return np.frombuffer(path.read_bytes()[:FEATURES], np.uint8).astype(np.float32)


def compute(path: Path, rounds: int = 4) -> np.ndarray:
    """Array operations, which let other threads run."""
    values = np.frombuffer(path.read_bytes(), np.uint8).astype(np.float32)
    grid = np.resize(values, (256, 256))
    for _ in range(rounds):
        grid = np.sqrt(np.abs(np.sin(grid) * 3 + 1))
    return grid.ravel()[:FEATURES].astype(np.float32)


def parse(path: Path) -> np.ndarray:
    """Python, of which one thread of a process runs at a time."""
    total = 0
    for byte in path.read_bytes()[:20_000]:
        total = (total * 31 + byte) % 65_521
    return np.full(FEATURES, total / 65_521, np.float32)


def ask(path: Path) -> np.ndarray:
    """A client that keeps to a rate."""
    time.sleep(0.004)
    return np.full(FEATURES, len(path.name), np.float32)


WORK: dict[str, Callable[[Path], np.ndarray]] = {
    "read": read,
    "compute": compute,
    "parse": parse,
    "ask": ask,
    "none": lambda path: np.full(FEATURES, len(path.name), np.float32),
}


class Maker:
    """Makes the batch of a given number."""

    def __init__(self, folder: Path, work: str, batch: int) -> None:
        self.paths = sorted(path for path in folder.rglob("*") if path.is_file())
        self.work, self.batch = work, batch

    def __call__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Samples and labels."""
        chosen = [
            self.paths[(number * self.batch + at) % len(self.paths)] for at in range(self.batch)
        ]
        samples = np.stack([WORK[self.work](path) for path in chosen])
        return samples, np.arange(self.batch) % 10
