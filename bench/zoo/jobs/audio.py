"""Clips of raw audio packed in one file: random reads, and a spectrogram by numpy if asked for."""

import os
from pathlib import Path

import numpy as np
import torch
import trainer
from torch import Tensor
from torch.utils.data import Dataset

CLIP_BYTES = 256 * 1024


class Clips(Dataset[tuple[Tensor, int]]):
    def __init__(self, folder: Path, windows: list[int], limit: int | None) -> None:
        self.path = folder / "records.bin"
        self.count = limit or self.path.stat().st_size // CLIP_BYTES
        self.windows = windows
        self.file = -1

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if self.file < 0:
            self.file = os.open(self.path, os.O_RDONLY)
        clip = np.frombuffer(os.pread(self.file, CLIP_BYTES, index * CLIP_BYTES), np.int16)
        features = [spectrum(clip, window) for window in self.windows]
        return torch.from_numpy(
            np.concatenate([clip[:128].astype(np.float32), *features])
        ), index % 10


def spectrum(clip: np.ndarray, window: int) -> np.ndarray:
    """Mean log power by frequency, over half-overlapping windows."""
    starts = np.arange(0, len(clip) - window, window // 2)
    frames = clip[starts[:, None] + np.arange(window)] * np.hanning(window)
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    return np.asarray(np.log1p(power).mean(axis=0)[:64], np.float32)


def main() -> None:
    parser = trainer.options(__doc__)
    parser.add_argument("--windows", type=int, nargs="*", default=[], help="spectrogram sizes")
    parser.add_argument("--limit", type=int, default=None, help="use only so many clips")
    args = parser.parse_args()
    clips = Clips(args.data, args.windows, args.limit)
    trainer.train(trainer.make_loader(clips, args, shuffle=True), args)


if __name__ == "__main__":
    main()
