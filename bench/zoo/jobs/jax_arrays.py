"""Trains with JAX from arrays that a source of somebody's own, grain or torch brings.

The device is a callback that sleeps inside the compiled step: the host waits for it in the call. A
real computation (--real) is queued instead, as on an accelerator.
"""

import argparse
import itertools
import json
import os
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import absl.flags
import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
from own_source_work import WORK, Maker

FEATURES = 64
Batch = tuple[np.ndarray, np.ndarray]


def options() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--real", type=int, default=0, help="products in a step, as on a device")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--buffer", type=int, default=64)
    parser.add_argument("--work", choices=WORK, default="none")
    parser.add_argument("--sync-every", type=int, default=0)
    parser.add_argument("--recompile", action="store_true", help="batches of ever other lengths")
    parser.add_argument("--source", choices=SOURCES, default="generator")
    return parser.parse_args()


class Samples:
    """Random access to samples, for grain and torch."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.paths = sorted(path for path in args.data.rglob("*") if path.is_file())
        self.work = args.work

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return WORK[self.work](self.paths[index]), index % 10


def by_generator(args: argparse.Namespace) -> Iterator[Batch]:
    """The loop itself makes each batch when it asks for it."""
    make = Maker(args.data, args.work, args.batch)
    for number in itertools.count():
        yield make(number)


def by_queue(args: argparse.Namespace) -> Iterator[Batch]:
    """A thread makes them ahead."""
    ready: queue.Queue[Batch] = queue.Queue(4)

    def fill() -> None:
        for batch in by_generator(args):
            ready.put(batch)

    threading.Thread(target=fill, daemon=True).start()
    while True:
        yield ready.get()


def by_map_dataset(args: argparse.Namespace) -> Iterator[Batch]:
    """A MapDataset that is read by grain's threads."""
    dataset = grain.MapDataset.source(Samples(args)).shuffle(seed=1).repeat().batch(args.batch)
    read = grain.ReadOptions(num_threads=args.threads, prefetch_buffer_size=args.buffer)
    yield from dataset.to_iter_dataset(read)


def by_workers(args: argparse.Namespace) -> Iterator[Batch]:
    """The same in processes of grain's."""
    dataset = grain.MapDataset.source(Samples(args)).shuffle(seed=1).repeat().batch(args.batch)
    read = grain.ReadOptions(num_threads=args.threads, prefetch_buffer_size=args.buffer)
    many = grain.MultiprocessingOptions(num_workers=max(1, args.workers))
    yield from dataset.to_iter_dataset(read).mp_prefetch(many)


def by_loader(args: argparse.Namespace) -> Iterator[Batch]:
    """Grain's DataLoader."""
    from grain.python import Batch as ToBatch

    source = Samples(args)
    yield from grain.DataLoader(
        data_source=source,
        sampler=grain.samplers.IndexSampler(len(source), shuffle=True, seed=1),
        operations=[ToBatch(args.batch, drop_remainder=True)],
        worker_count=args.workers,
        read_options=grain.ReadOptions(num_threads=args.threads),
    )


def by_torch(args: argparse.Namespace) -> Iterator[Batch]:
    """A torch DataLoader, whose batches are made numpy arrays."""
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    loader: DataLoader[Any] = DataLoader(
        Samples(args),
        batch_size=args.batch,
        num_workers=args.workers,
        multiprocessing_context="spawn" if args.workers else None,
        drop_last=True,
    )
    while True:
        for samples, labels in loader:
            yield samples.numpy(), labels.numpy()


SOURCES = {
    "generator": by_generator,
    "queue": by_queue,
    "map": by_map_dataset,
    "mp": by_workers,
    "loader": by_loader,
    "torch": by_torch,
}


def make_step(args: argparse.Namespace) -> Any:
    """Forward, backward and update as one compiled function."""
    optimizer = optax.adam(1e-3)

    def occupy(anchor: Any) -> Any:
        if args.real:
            grid = jnp.full((512, 512), 1e-3) + anchor
            return jax.lax.fori_loop(0, args.real, lambda _, x: jnp.tanh(x @ x), grid).sum() * 0

        def pause(_: Any) -> Any:
            time.sleep(args.step_ms / 1e3)
            return np.float32(0)

        shape = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(pause, shape, anchor)

    def loss_of(weights: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
        hidden = jnp.tanh(x @ weights["a"] / 255)
        scores = hidden @ weights["b"]
        return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean()

    @jax.jit
    def train_step(weights: Any, state: Any, x: jax.Array, y: jax.Array) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(weights, x, y)
        updates, state = optimizer.update(grads, state, weights)
        return optax.apply_updates(weights, updates), state, loss + occupy(x[0, 0])

    key = jax.random.key(0)
    weights = {"a": jax.random.normal(key, (FEATURES, 64)), "b": jnp.zeros((64, 10))}
    return train_step, weights, optimizer.init(weights)


def main() -> None:
    args = options()
    absl.flags.FLAGS.mark_as_parsed()  # grain's workers ask for them
    step, weights, state = make_step(args)
    measures = os.environ.get("ZOO_MEASURE") == "1"
    waited_s = started_s = 0.0
    steps = samples = 0
    asked_s = time.perf_counter()
    loss = jnp.zeros(())
    for number, (inputs, labels) in enumerate(SOURCES[args.source](args)):
        waited_s += time.perf_counter() - asked_s
        length = len(inputs) - number % 64 if args.recompile else len(inputs)
        weights, state, loss = step(weights, state, inputs[:length], labels[:length])
        if args.sync_every and number % args.sync_every == 0:
            print(f"step {number} loss {float(loss):.4f}", flush=True)
        now_s = time.perf_counter()
        if not started_s:
            loss.block_until_ready()
            started_s, waited_s = time.perf_counter(), 0.0
        else:
            steps, samples = steps + 1, samples + length
        asked_s = time.perf_counter()
        if now_s - started_s > args.seconds:
            break
    loss.block_until_ready()
    wall_s = time.perf_counter() - started_s
    truth = {
        "steps": steps,
        "samples_per_s": round(samples / wall_s, 2),
        "busy_frac": round(steps * args.step_ms / 1e3 / wall_s, 4) if not args.real else -1.0,
        "wait_frac": round(waited_s / wall_s, 4) if measures else None,
    }
    print(json.dumps({"zoo": truth}), flush=True)
    if args.recompile or args.real:
        total = float(sum(jnp.abs(each).sum() for each in weights.values()))
        print(f"weights {total!r}", flush=True)


if __name__ == "__main__":
    main()
