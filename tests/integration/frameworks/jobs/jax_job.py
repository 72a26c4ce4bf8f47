"""A small training with JAX in many ways; the last line is what it has learned, to the last bit."""

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import absl.flags
import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax

absl.flags.FLAGS.mark_as_parsed()
STEPS = 40
BATCH = 8
WAIT_S = 0.02


class Rows:
    """Samples by number."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.pause_s = pause_s

    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        time.sleep(self.pause_s)
        return np.random.default_rng(index).standard_normal(16).astype(np.float32), index % 4


def from_rows(way: str) -> Iterator[Any]:
    """Batches of grain."""
    rows: Any = grain.MapDataset.source(Rows()).shuffle(seed=3).batch(BATCH)
    read = grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)
    if way == "loader":
        return iter(
            grain.DataLoader(
                data_source=Rows(),
                sampler=grain.samplers.SequentialSampler(STEPS * BATCH),
                operations=[grain.transforms.Batch(BATCH)],
                read_options=read,
            )
        )
    dataset = rows.to_iter_dataset(read)
    if way == "workers":
        dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=1))
    return iter(dataset)


def by_generator(pause_s: float = 0.0) -> Iterator[Any]:
    """The loop makes its batches."""
    rows = Rows()
    for number in range(STEPS):
        time.sleep(pause_s)
        chosen = [rows[number * BATCH + at] for at in range(BATCH)]
        yield np.stack([x for x, _ in chosen]), np.array([y for _, y in chosen])


def by_queue() -> Iterator[Any]:
    """A thread makes them, a fiftieth of a second each."""
    ready: queue.Queue[Any] = queue.Queue(2)

    def fill() -> None:
        for each in by_generator(WAIT_S):
            ready.put(each)

    threading.Thread(target=fill, daemon=True).start()
    for _ in range(STEPS):
        yield ready.get()


optimizer = optax.adam(1e-2)


@jax.jit
def train_step(weights: Any, state: Any, x: Any, y: Any) -> Any:
    """Forward, backward and update."""

    def loss_of(weights: Any) -> Any:
        scores = x @ weights["a"]
        return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean()

    loss, grads = jax.value_and_grad(loss_of)(weights)
    updates, state = optimizer.update(grads, state, weights)
    return optax.apply_updates(weights, updates), state, loss


@jax.jit
def evaluate(weights: Any, x: Any) -> Any:
    """As many weights go in, and little comes out."""
    return (x @ weights["a"]).sum()


def choose_source(way: str) -> Iterator[Any]:
    """Where the batches come from."""
    if way in ("map", "workers", "loader"):
        return from_rows(way)
    return by_queue() if way == "queue" else by_generator()


def disturb(way: str, number: int, weights: Any, state: Any) -> None:
    """What jobs do beside training."""
    if way == "fork" and number == 3 and not os.fork():
        os._exit(0)
    if way == "raise" and number == 5:
        try:
            train_step(weights, state, "no array", None)
        except TypeError:
            return


def main() -> None:
    way = sys.argv[1]
    weights = {"a": jnp.ones((16, 4)) / 8}
    state = optimizer.init(weights)
    step: Any = train_step
    if way == "ahead":
        x, y = next(by_generator())
        step = train_step.lower(weights, state, x, y).compile()
    if way == "nans":
        jax.config.update("jax_debug_nans", val=True)
    loss = jnp.zeros(())
    for number, batch in enumerate(choose_source(way)):
        if way == "stop" and number == STEPS // 2:
            break
        weights, state, loss = step(weights, state, *batch)
        if number % 10 == 0:
            float(evaluate(weights, batch[0]))
        disturb(way, number, weights, state)
    total = float(jnp.abs(weights["a"]).sum())
    sys.stdout.write(json.dumps({"loss": repr(float(loss)), "weights": repr(total)}) + "\n")


if __name__ == "__main__":
    main()
