"""A training whose input pipeline is the limit, by kind; prints its rate, stretch by stretch.

`python -m bench.fix_job KIND --workers N --prefetch N --seconds S`. The device is emulated: a step
occupies no core. Kinds: blocked (each sample waits 5 ms for its storage, like a file on a slow
mount), computing (each sample decodes for 4 ms on a core), uneven (every tenth sample takes ten
times as long), distant (each sample waits 10 ms: seven workers are needed), healthy (fetches take a
fifth of a step), decoding (a JPEG through Pillow), reading (a file of 256 kB that is not in the
page cache), mixed (waits 4 ms for its storage, reads and decodes).
"""

from __future__ import annotations

import argparse
import atexit
import io
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

STEP_S = {
    "blocked": 0.012,
    "computing": 0.010,
    "uneven": 0.012,
    "distant": 0.006,
    "healthy": 0.010,
    "decoding": 0.001,
    "reading": 0.0005,
    "mixed": 0.008,
}
FILES, FILE_BYTES = 256, 256 << 10
STRETCH_S = 1.0


class Samples(Dataset[Any]):
    def __init__(self, kind: str, size: int) -> None:
        self.kind = kind
        self.size = size
        self.jpeg = _make_jpeg() if kind in {"decoding", "mixed"} else b""
        self.folder = _make_files() if kind in {"reading", "mixed"} else ""

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        if self.kind == "blocked":
            time.sleep(0.005)
        elif self.kind == "computing":
            _compute(0.004, index)
        elif self.kind == "distant":
            time.sleep(0.010)
        elif self.kind == "decoding":
            _decode(self.jpeg)
        elif self.kind == "reading":
            self._read(index)
        elif self.kind == "mixed":
            time.sleep(0.004)
            self._read(index)
            _decode(self.jpeg)
        elif self.kind == "uneven":
            time.sleep(0.02 if index % 10 == 0 else 0.002)
        else:
            _compute(0.0005, index)
        return torch.full((3, 32, 32), float(index))

    def _read(self, index: int) -> None:
        """From the disk, whatever was read before."""
        file = os.open(f"{self.folder}/{index * 97 % FILES}", os.O_RDONLY)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.read(file, FILE_BYTES)
        finally:
            os.close(file)


def _make_jpeg() -> bytes:
    """500 x 375, with some structure, as photographs have."""
    small = np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC).save(file, "JPEG")
    return file.getvalue()


def _decode(jpeg: bytes) -> None:
    image = Image.open(io.BytesIO(jpeg)).convert("RGB")
    np.asarray(image.resize((224, 224), Image.Resampling.BILINEAR))


def _make_files() -> str:
    """On the disk that temporary files are on."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for number in range(FILES):
        with Path(folder, str(number)).open("wb") as file:
            file.write(os.urandom(FILE_BYTES))
            os.fsync(file.fileno())
    return folder


def _compute(cpu_s: float, index: int) -> None:
    """Occupy a core, as decoding does."""
    end = time.thread_time() + cpu_s
    block = np.full((64, 64), float(index))
    while time.thread_time() < end:
        block = block @ block % 7.0


def make_loader(options: argparse.Namespace) -> Any:
    """As good as endless."""
    return DataLoader(
        Samples(options.kind, 4_000_000),
        batch_size=4,
        num_workers=options.workers,
        prefetch_factor=options.prefetch if options.workers else None,
        pin_memory=options.pin,
    )


def run(loader: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Train, and count: by seconds, and in all until `--first` seconds have passed."""
    begun = mark = time.monotonic()
    marked = taken = early = 0
    rates = []
    for batch in loader:
        time.sleep(STEP_S[options.kind])
        assert batch.shape[0] == 4
        taken += 1
        now = time.monotonic()
        early += now - begun < options.first
        if now - mark >= STRETCH_S:
            rates.append((taken - marked) / (now - mark))
            mark, marked = now, taken
        if now - begun >= options.seconds:
            break
    took_s = time.monotonic() - begun
    return {"rates": rates, "batches": taken, "seconds": took_s, "early": early}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(STEP_S))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--first", type=float, default=12.0)
    parser.add_argument("--pin", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(run(make_loader(options), options)))


if __name__ == "__main__":
    main()
