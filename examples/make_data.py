"""Make the data sets that the examples and the bottleneck zoo train on. Deterministic and quick.

    python examples/make_data.py images data/images --count 2000

Each kind is what some real input pipeline reads: a folder of JPEGs, one file of token ids, a folder
of small files, packed shards with an index, tar shards, lines of JSON, gzip or zstd records.
A kind is written next to its place and renamed when complete, so a half-made set is never used.
"""

import argparse
import gzip
import io
import json
import random
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

SEED = 20
WORDS = [
    f"{a}{b}{c}" for a in "bcdfgklmnprst" for b in ("a", "e", "i", "o", "ou") for c in "lmnrstx"
]


def make_images(folder: Path, count: int, width: int = 500, height: int = 375) -> None:
    """`count` JPEGs of about 50 KB in 10 class folders, smooth shapes with some noise."""
    for number, jpeg in enumerate(jpegs(count, width, height)):
        (folder / f"class{number % 10}").mkdir(exist_ok=True)
        (folder / f"class{number % 10}" / f"{number:06}.jpg").write_bytes(jpeg)


def make_tokens(folder: Path, count: int) -> None:
    """One file `tokens.bin` of `count` million uint16 token ids."""
    rng = np.random.default_rng(SEED)
    with (folder / "tokens.bin").open("wb") as file:
        for _ in range(count):
            file.write(rng.integers(0, 50_000, 1_000_000, dtype=np.uint16).tobytes())


def make_files(folder: Path, count: int, size_bytes: int = 4096) -> None:
    """`count` small files in one folder, as feature extractors leave them behind."""
    rng = np.random.default_rng(SEED)
    for number in range(count):
        (folder / f"{number:06}.bin").write_bytes(rng.bytes(size_bytes))


def make_packed(folder: Path, count: int, size_bytes: int = 256 * 1024) -> None:
    """`count` records of 256 KB in one file `records.bin`, in no order that matters."""
    rng = np.random.default_rng(SEED)
    with (folder / "records.bin").open("wb") as file:
        for _ in range(count):
            file.write(rng.bytes(size_bytes))


def make_tars(folder: Path, count: int, shard_size: int = 100) -> None:
    """`count` JPEGs in tar shards, the layout that webdataset reads."""
    images = jpegs(count, 500, 375)
    for start in range(0, count, shard_size):
        with tarfile.open(folder / f"{start // shard_size:04}.tar", "w") as tar:
            for number in range(start, min(count, start + shard_size)):
                _add_member(tar, f"{number:06}.jpg", next(images))


def make_lines(folder: Path, count: int) -> None:
    """`count` documents as lines of JSON in `text.jsonl`."""
    with (folder / "text.jsonl").open("w") as file:
        file.writelines(documents(count))


def make_gzip(folder: Path, count: int, shard_size: int = 200) -> None:
    """`count` documents in gzip shards of 200 lines."""
    lines = list(documents(count))
    for start in range(0, count, shard_size):
        text = "".join(lines[start : start + shard_size])
        (folder / f"{start // shard_size:04}.jsonl.gz").write_bytes(
            gzip.compress(text.encode(), compresslevel=6, mtime=0)
        )


def make_zstd(folder: Path, count: int, size_bytes: int = 2_000_000) -> None:
    """`count` arrays of 2 MB, each a zstd frame of about 0.7 MB in a file of its own."""
    import zstandard  # noqa: PLC0415  the one kind that needs it

    rng = np.random.default_rng(SEED)
    for number in range(count):
        counts = rng.geometric(0.3, size_bytes).astype(np.uint8)
        frame = zstandard.compress(counts.tobytes(), 3)
        (folder / f"{number:06}.zst").write_bytes(frame)


MAKERS: dict[str, Callable[..., None]] = {
    "files": make_files,
    "gzip": make_gzip,
    "images": make_images,
    "lines": make_lines,
    "packed": make_packed,
    "tars": make_tars,
    "tokens": make_tokens,
    "zstd": make_zstd,
}


def make(kind: str, folder: Path, count: int) -> Path:
    """The folder with the data set, made now unless it is there already."""
    if not folder.exists():
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        MAKERS[kind](partial, count)
        partial.rename(folder)
    return folder


def jpegs(count: int, width: int, height: int) -> Iterator[bytes]:
    """Encoded pictures; 32 are drawn and then only recoloured, because drawing is slow."""
    rng = np.random.default_rng(SEED)
    noise = rng.integers(-18, 18, (height, width, 3))
    drawn = [np.asarray(_shapes(rng, width, height)) for _ in range(min(count, 32))]
    for number in range(count):
        shifted = drawn[number % len(drawn)] + np.roll(noise, number, axis=0) + number % 23
        yield _encode(np.clip(shifted, 0, 255).astype(np.uint8))


def documents(count: int) -> Iterator[str]:
    """Lines `{"text": ..., "label": ...}` of some hundred made-up words."""
    rng = random.Random(SEED)
    for number in range(count):
        text = " ".join(rng.choices(WORDS, k=rng.randint(300, 500)))
        yield json.dumps({"text": text, "label": number % 10}) + "\n"


def _shapes(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    coarse = rng.integers(0, 255, (12, 16, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def _encode(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def _add_member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=sorted(MAKERS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=1000, help="how many items (default 1000)")
    options = parser.parse_args()
    print(make(options.kind, options.folder, options.count))


if __name__ == "__main__":
    main()
