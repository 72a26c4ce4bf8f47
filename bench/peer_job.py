"""One loader on one image pipeline, at full speed: `python bench/peer_job.py NAME FOLDER SECONDS`.

Every peer does the same: read a JPEG file, decode it, resize it to 224 x 224 (bilinear), batches of
32 as uint8. Pillow decodes for all but tf.data and DALI, which have only their own decoders. No
training: images a second are counted, and images for each CPU second of the process and its
workers. Runs in the peer's own environment, so it imports nothing of ours.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZE = 224
BATCH = 32
CORES = len(os.sched_getaffinity(0))


def decode(data: bytes) -> Any:
    import numpy as np
    from PIL import Image

    image = (
        Image.open(io.BytesIO(data)).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    )
    return np.asarray(image)


def to_tensor(data: bytes) -> Any:
    import torch

    return torch.from_numpy(decode(data).copy())


class Images:
    def __init__(self, folder: str) -> None:
        self.paths = sorted(str(path) for path in Path(folder).glob("*.jpg"))

    def __len__(self) -> int:
        return 100 * len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return to_tensor(Path(self.paths[index % len(self.paths)]).read_bytes())


def dataloader(workers: int) -> Callable[[str], Iterator[Any]]:
    def start(folder: str) -> Iterator[Any]:
        from torch.utils.data import DataLoader

        return iter(DataLoader(Images(folder), batch_size=BATCH, num_workers=workers))

    return start


def spdl(folder: str) -> Iterator[Any]:
    import numpy as np
    import torch
    from spdl.pipeline import PipelineBuilder

    paths = itertools.cycle(Images(folder).paths)
    pipeline = (
        PipelineBuilder()
        .add_source(paths)
        .pipe(lambda path: decode(Path(path).read_bytes()), concurrency=CORES, output_order="input")
        .aggregate(BATCH)
        .pipe(lambda rows: torch.from_numpy(np.stack(rows)))
        .add_sink(4)
        .build(num_threads=CORES)
    )
    with pipeline.auto_stop():
        yield from pipeline


def webdataset(folder: str) -> Iterator[Any]:
    import tarfile

    import torch
    import webdataset as wds
    from torch.utils.data import DataLoader

    shards = []
    paths = Images(folder).paths
    for number in range(CORES):
        shard = f"{folder}/shard-{number}.tar"
        with tarfile.open(shard, "w") as file:
            for path in paths[number::CORES]:
                file.add(path, arcname=Path(path).name)
        shards.append(shard)
    dataset = (
        wds.WebDataset(shards, shardshuffle=False)
        .repeat()
        .to_tuple("jpg")
        .map(lambda row: to_tensor(row[0]))
        .batched(BATCH, collation_fn=torch.stack)
    )
    return iter(DataLoader(dataset, batch_size=None, num_workers=CORES))


def tfdata(folder: str) -> Iterator[Any]:
    import tensorflow as tf

    def load(path: Any) -> Any:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.cast(tf.image.resize(image, (SIZE, SIZE)), tf.uint8)

    dataset = tf.data.Dataset.from_tensor_slices(Images(folder).paths).repeat()
    dataset = dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH)
    return iter(dataset.prefetch(tf.data.AUTOTUNE))


def litdata(folder: str) -> Iterator[Any]:
    from litdata import StreamingDataLoader, StreamingDataset, optimize

    chunks = f"{folder}/chunks"
    paths = [Path(path) for path in Images(folder).paths]
    optimize(Path.read_bytes, paths, chunks, chunk_bytes="16MB", mode="overwrite", num_workers=1)
    dataset = StreamingDataset(chunks, transform=to_tensor, drop_last=True)
    loader = StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=CORES, persistent_workers=True, drop_last=True
    )
    return itertools.chain.from_iterable(itertools.repeat(loader))


def dali(folder: str) -> Iterator[Any]:
    import torch
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=CORES, device_id=None)
    def images() -> Any:
        data, _ = fn.readers.file(files=Images(folder).paths)
        image = fn.decoders.image(data, device="cpu", output_type=types.RGB)
        linear = types.INTERP_LINEAR
        return fn.resize(image, resize_x=SIZE, resize_y=SIZE, interp_type=linear, antialias=True)

    pipeline = images()
    pipeline.build()
    while True:
        (batch,) = pipeline.run()
        yield torch.from_dlpack(batch.as_tensor())


PEERS: dict[str, Callable[[str], Iterator[Any]]] = {
    "DataLoader, as it comes (0 workers)": dataloader(0),
    "DataLoader, a worker for each core": dataloader(CORES),
    "DataLoader, 4 x cores workers": dataloader(4 * CORES),
    "DataLoader, 1 worker": dataloader(1),
    "SPDL": spdl,
    "WebDataset": webdataset,
    "litdata": litdata,
    "DALI (CPU)": dali,
    "tf.data AUTOTUNE": tfdata,
}


def main(name: str, folder: str, seconds: float, settle: float) -> None:
    batches = PEERS[name](folder)
    next(batches)
    begun = mark = time.monotonic()
    taken = counted = 0
    used_s = first_rate = 0.0
    for batch in batches:
        assert tuple(batch.shape[1:]) == (SIZE, SIZE, 3)
        taken += int(batch.shape[0])
        now = time.monotonic()
        if not counted and now - begun >= settle:
            mark, counted, used_s = now, taken, tree_cpu_s()
            first_rate = taken / (now - begun)
        if counted and now - mark >= seconds:
            break
    images = taken - counted
    cpu_s = tree_cpu_s() - used_s
    rate = images / (time.monotonic() - mark)
    told = {"images_per_s": rate, "images_per_cpu_s": images / cpu_s, "at_first": first_rate}
    print(json.dumps(told), flush=True)
    os._exit(0)  # some peers' threads do not end by themselves


def tree_cpu_s() -> float:
    """Of this process and of its living children."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    total = own.ru_utime + own.ru_stime
    ticks = os.sysconf("SC_CLK_TCK")
    for task in Path("/proc/self/task").iterdir():
        for pid in (task / "children").read_text().split():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / ticks
    return total


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
