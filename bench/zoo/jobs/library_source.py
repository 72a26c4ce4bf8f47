"""Trains from libraries that bring batches, as their own pages tell users to write it.

What a sample costs is the fault: reading it, computing on it, parsing it in Python, or waiting for
a service. Each library calls the same function for it, however it spreads its calls.
"""

import importlib.machinery
import sys
import tempfile
import types
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import trainer
from own_source_work import WORK
from torch import Tensor

Batch = tuple[Tensor, Tensor]


def find_paths(folder: Path) -> list[str]:
    """All files of a data set."""
    return sorted(str(path) for path in folder.rglob("*") if path.is_file())


def make(path: str, work: str) -> np.ndarray:
    """One sample."""
    made: np.ndarray = WORK[work](Path(path))
    return made


def label(samples: Any) -> Batch:
    """What the loop expects."""
    rows = torch.as_tensor(np.asarray(samples))
    return rows, torch.arange(len(rows)) % 10


def make_rows(rows: dict[str, Any], work: str, column: str = "path") -> dict[str, Any]:
    """A batch of a table."""
    return {"sample": np.stack([make(str(path), work) for path in rows[column]])}


def by_ray(args: Any) -> Iterator[Batch]:
    """Ray Data, in the job's own cluster."""
    import ray

    ray.init(
        num_cpus=max(2, args.workers + 1),
        include_dashboard=False,
        log_to_driver=False,
        ignore_reinit_error=True,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.from_items([{"path": path} for path in find_paths(args.data)])
    rows = rows.repartition(64).map_batches(
        partial(make_rows, work=args.work),
        batch_size=args.batch,
        compute=ray.data.TaskPoolStrategy(size=args.workers),
    )
    for batch in rows.iter_torch_batches(batch_size=args.batch):
        yield label(batch["sample"])


def by_ray_numpy(args: Any) -> Iterator[Batch]:
    """Ray Data without tensors of torch, and an actor for what is done to rows."""
    import ray

    ray.init(
        num_cpus=max(2, args.workers + 1),
        include_dashboard=False,
        log_to_driver=False,
        ignore_reinit_error=True,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False

    class Prepare:
        def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
            return make_rows(rows, args.work)

    rows = ray.data.from_items([{"path": path} for path in find_paths(args.data)])
    rows = rows.repartition(64).map_batches(
        Prepare, batch_size=args.batch, compute=ray.data.ActorPoolStrategy(size=args.workers)
    )
    for batch in rows.iter_batches(batch_size=args.batch):
        yield label(batch["sample"])


def by_nodes(args: Any, method: str = "thread") -> Iterator[Batch]:
    """The nodes of torchdata."""
    from torchdata import nodes

    node: Any = nodes.IterableWrapper(find_paths(args.data))
    node = nodes.ParallelMapper(
        node, partial(make, work=args.work), num_workers=args.workers, method=method
    )
    node = nodes.Prefetcher(nodes.Batcher(node, args.batch), prefetch_factor=2)
    for batch in nodes.Loader(node):
        yield label(np.stack(batch))


def by_spdl(args: Any) -> Iterator[Batch]:
    """SPDL: stages in threads of a pool behind a thread with an event loop."""
    from spdl.pipeline import PipelineBuilder

    pipeline = (
        PipelineBuilder()
        .add_source(find_paths(args.data))
        .pipe(partial(make, work=args.work), concurrency=args.workers)
        .aggregate(args.batch)
        .add_sink(3)
        .build(num_threads=args.workers)
    )
    with pipeline.auto_stop():
        for batch in pipeline.get_iterator(timeout=60):
            yield label(np.stack(batch))


def _decode(sample: dict[str, Any], work: str) -> np.ndarray:
    if work == "none":
        return np.zeros(64, np.float32)
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(next(iter(v for k, v in sample.items() if not k.startswith("__"))))
        file.flush()
        return make(file.name, work)


def by_webdataset(args: Any) -> Iterator[Batch]:
    """WebDataset without a loader: read and prepared by the loop itself."""
    import webdataset as wds

    rows = wds.WebDataset(find_paths(args.data), shardshuffle=False)
    rows = rows.map(partial(_decode, work=args.work))
    for batch in rows.batched(args.batch, partial=False, collation_fn=np.stack):
        yield label(batch)


def by_webloader(args: Any) -> Iterator[Batch]:
    """WebLoader, which has workers."""
    import webdataset as wds

    rows = wds.WebDataset(find_paths(args.data), shardshuffle=False)
    rows = rows.map(partial(_decode, work=args.work))
    rows = rows.batched(args.batch, partial=False, collation_fn=np.stack)
    for batch in wds.WebLoader(rows, batch_size=None, num_workers=args.workers):
        yield label(batch)


def by_hf_map(args: Any) -> Iterator[Batch]:
    """A data set of `datasets` with a transform that is made when a row is asked for."""
    from datasets import Dataset

    rows = Dataset.from_dict({"path": find_paths(args.data)})
    rows = rows.with_transform(partial(make_rows, work=args.work))
    for batch in rows.iter(batch_size=args.batch):
        yield label(batch["sample"])


def by_hf_stream(args: Any) -> Iterator[Batch]:
    """A streamed one."""
    from datasets import Dataset

    rows = Dataset.from_dict({"path": find_paths(args.data)}).to_iterable_dataset(num_shards=8)
    rows = rows.map(partial(make_rows, work=args.work), batched=True, batch_size=args.batch)
    for batch in rows.iter(batch_size=args.batch):
        yield label(batch["sample"])


def by_hf_loader(args: Any) -> Iterator[Batch]:
    """A streamed one behind torch's loader."""
    from datasets import Dataset

    rows = Dataset.from_dict({"path": find_paths(args.data)}).to_iterable_dataset(num_shards=8)
    rows = rows.map(
        partial(make_rows, work=args.work),
        batched=True,
        batch_size=args.batch,
        remove_columns=["path"],
    )
    loader = torch.utils.data.DataLoader(
        rows.with_format("torch"), batch_size=args.batch, num_workers=args.workers
    )
    for batch in loader:
        yield label(batch["sample"])


def _stand_in_for_torchvision() -> None:
    """Streaming imports two names of it, and PyPI's build does not work with a torch for CPUs."""
    members = {".datasets": "VisionDataset", ".transforms.functional": "to_tensor"}
    for name in ("", ".transforms", *members):
        module: Any = types.ModuleType(f"torchvision{name}")
        module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
        if name in members:
            setattr(module, members[name], object)
        sys.modules[module.__name__] = module


def by_mosaic(args: Any) -> Iterator[Batch]:
    """MosaicML Streaming: shards that are downloaded from elsewhere."""
    _stand_in_for_torchvision()
    from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

    class Rows(StreamingDataset):
        def __getitem__(self, at: int) -> Any:
            return make(super().__getitem__(at)["path"], args.work)

    with tempfile.TemporaryDirectory() as folder:
        with MDSWriter(out=f"{folder}/far", columns={"path": "str"}) as writer:
            for path in find_paths(args.data):
                writer.write({"path": path})
        rows = Rows(
            remote=f"{folder}/far", local=f"{folder}/near", batch_size=args.batch, shuffle=False
        )
        for batch in StreamingDataLoader(rows, batch_size=args.batch, num_workers=args.workers):
            yield label(batch)


def _write_row(path: str) -> dict[str, str]:
    return {"path": path}


def make_row(row: dict[str, str], work: str) -> np.ndarray:
    """A row of a stream."""
    return make(row["path"], work)


def by_litdata(args: Any) -> Iterator[Batch]:
    """litdata: chunks that are read from a folder or a store."""
    import litdata

    with tempfile.TemporaryDirectory() as folder:
        litdata.optimize(
            fn=_write_row,
            inputs=find_paths(args.data),
            output_dir=folder,
            chunk_bytes="1MB",
            num_workers=1,
            verbose=False,
        )
        rows = litdata.StreamingDataset(
            folder, shuffle=False, transform=partial(make_row, work=args.work)
        )
        for batch in litdata.StreamingDataLoader(
            rows, batch_size=args.batch, num_workers=args.workers
        ):
            yield label(batch)


class Rows(torch.utils.data.IterableDataset):
    """Samples one after the other."""

    def __init__(self, paths: list[str], work: str) -> None:
        self.paths, self.work = paths, work

    def __iter__(self) -> Iterator[Any]:
        for path in self.paths:
            yield make(path, self.work)


def by_dispatcher(args: Any) -> Iterator[Batch]:
    """Accelerate: the first process reads for all."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    accelerator = Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=True)
    )
    loader = torch.utils.data.DataLoader(
        Rows(find_paths(args.data), args.work), batch_size=args.batch, num_workers=args.workers
    )
    for batch in accelerator.prepare(loader):
        yield label(batch)


SOURCES: dict[str, Any] = {
    "ray": by_ray,
    "ray-numpy": by_ray_numpy,
    "nodes": by_nodes,
    "node-processes": partial(by_nodes, method="process"),
    "spdl": by_spdl,
    "webdataset": by_webdataset,
    "webloader": by_webloader,
    "hf-map": by_hf_map,
    "hf-stream": by_hf_stream,
    "hf-loader": by_hf_loader,
    "mosaic": by_mosaic,
    "litdata": by_litdata,
    "dispatcher": by_dispatcher,
}


class Epochs:
    """A source that begins anew with each epoch."""

    def __init__(self, args: Any) -> None:
        self.args = args

    def __iter__(self) -> Iterator[Batch]:
        return iter(SOURCES[self.args.source](self.args))


def main() -> None:
    """Train from one source, again and again."""
    parser = trainer.options(__doc__)
    parser.add_argument("--source", choices=SOURCES, default="nodes")
    parser.add_argument("--work", choices=WORK, default="read")
    args = parser.parse_args()
    torch.manual_seed(0)
    trainer.train(Epochs(args), args)


if __name__ == "__main__":
    main()
