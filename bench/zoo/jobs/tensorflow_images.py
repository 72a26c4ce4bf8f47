"""Trains on JPEGs through tf.data: by Keras's fit, or in a loop of its own. Knows of no recorder.

The device is a pause inside the model, as long as a real one would compute. The last line of output
is the job's own account.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

keras: Any = import_module("tf_keras") if "--legacy" in sys.argv else tf.keras

SIDE = 64


class Device(keras.layers.Layer):
    """Passes its input on after the time that a batch takes on the device."""

    def __init__(self, milliseconds: float) -> None:
        super().__init__()
        self.seconds = milliseconds / 1000

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """The pause begins when the batch is there, and keeps no core."""
        first = tf.reshape(inputs, [-1])[0]
        pause = tf.numpy_function(lambda _: time.sleep(self.seconds), [first], [])
        with tf.control_dependencies([pause]):
            return tf.identity(inputs)


class Deadline(keras.callbacks.Callback):
    """Ends the training after a set time and counts its steps."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.steps = 0
        self.since = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """The clock starts after the first step, which compiles."""
        self.since = self.since or time.perf_counter()
        self.steps += 1
        if self.elapsed() > self.seconds:
            self.model.stop_training = True

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """The same of `predict`."""
        self.on_train_batch_end(batch)
        self.model.stop_predicting = self.elapsed() > self.seconds

    def elapsed(self) -> float:
        """Seconds since the first step."""
        return time.perf_counter() - self.since


def load(path: tf.Tensor) -> tf.Tensor:
    """A small picture from a JPEG."""
    picture = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(picture, (SIDE, SIDE)) / 255.0


def load_augmented(path: tf.Tensor) -> tf.Tensor:
    """With random numbers, which calls that run at once would draw in another order."""
    return tf.image.random_flip_left_right(load(path))


def load_in_python(path: bytes) -> np.ndarray:
    """What a user writes who knows Python better than TensorFlow."""
    total = 0
    for byte in Path(path.decode()).read_bytes()[:20_000]:
        total = (total * 31 + byte) % 65_521
    return np.full((SIDE, SIDE, 3), total / 65_521, np.float32)


def through_python(path: tf.Tensor) -> tf.Tensor:
    """The same as part of a pipeline."""
    return tf.ensure_shape(tf.numpy_function(load_in_python, [path], tf.float32), (SIDE, SIDE, 3))


FUNCTIONS = {"plain": load, "augmented": load_augmented, "python": through_python}


def generate(paths: list[str]) -> Iterator[tuple[np.ndarray, int]]:
    """Samples from a plain generator."""
    while True:
        for path in paths:
            yield load_in_python(path.encode()), 1


class Pictures(getattr(keras.utils, "PyDataset", object)):  # type: ignore[misc]
    """Batches in Python, as Keras's guide has it."""

    def __init__(self, paths: list[str], options: argparse.Namespace) -> None:
        several = options.source == "processes"
        super().__init__(
            workers=options.workers, use_multiprocessing=several, max_queue_size=2 * options.workers
        )
        self.paths, self.options = paths, options

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        size = self.options.batch
        chosen = [self.paths[(number * size + at) % len(self.paths)] for at in range(size)]
        if self.options.nap_ms:
            time.sleep(self.options.nap_ms / 1000)  # a service that answers late
        return np.stack([self.load(path) for path in chosen]), np.ones(size, np.float32)

    def load(self, path: str) -> np.ndarray:
        """One picture; Pillow decodes without Python's lock."""
        if self.options.map == "python":
            return load_in_python(path.encode())
        with Image.open(path) as picture:
            return np.asarray(picture.convert("RGB").resize((SIDE, SIDE)), np.float32) / 255


def make_dataset(options: argparse.Namespace) -> Any:
    """The pipeline that the case asks for."""
    paths = [str(path) for path in sorted(options.data.rglob("*.jpg"))]
    if options.source in {"threads", "processes"}:
        return Pictures(paths, options)
    if options.source == "directory":
        pictures = keras.utils.image_dataset_from_directory(
            options.data, labels=None, image_size=(SIDE, SIDE), batch_size=options.batch, seed=1,
            verbose=False,
        )  # fmt: skip
        return pictures.map(lambda batch: (batch / 255.0, tf.ones(tf.shape(batch)[0]))).repeat()
    if options.map == "generator":
        kinds = (tf.TensorSpec((SIDE, SIDE, 3), tf.float32), tf.TensorSpec((), tf.int32))
        dataset = tf.data.Dataset.from_generator(lambda: generate(paths), output_signature=kinds)
        return dataset.batch(options.batch).prefetch(tf.data.AUTOTUNE)
    if options.fill:
        dataset = tf.data.Dataset.from_tensor_slices(paths[: 2 * options.fill])
        dataset = dataset.map(lambda path: (load(path), 1), num_parallel_calls=tf.data.AUTOTUNE)
        return dataset.shuffle(options.fill, seed=1).batch(options.batch).prefetch(2)
    dataset = tf.data.Dataset.from_tensor_slices(paths).repeat().shuffle(256, seed=1)
    calls = 1 if options.serial else tf.data.AUTOTUNE
    function = FUNCTIONS[options.map]
    dataset = dataset.map(lambda path: (function(path), 1), num_parallel_calls=calls)
    dataset = dataset.batch(options.batch)
    if not options.no_prefetch:
        return dataset.prefetch(tf.data.AUTOTUNE)
    settings = tf.data.Options()
    settings.experimental_optimization.inject_prefetch = False
    settings.experimental_optimization.map_and_batch_fusion = False
    return dataset.with_options(settings)


def make_model(options: argparse.Namespace) -> keras.Model:
    """Small, so that the pause is what a step takes."""
    layers = [Device(options.step_ms), keras.layers.Flatten()]
    model = keras.Sequential([keras.layers.InputLayer((SIDE, SIDE, 3)), *layers])
    model.add(keras.layers.Dense(options.width))
    model.add(keras.layers.Dense(1))
    return model


def fit(model: keras.Model, dataset: tf.data.Dataset, options: argparse.Namespace) -> Deadline:
    """Keras's own loop."""
    deadline = Deadline(options.seconds)
    callbacks: list[Any] = [deadline]
    with tempfile.TemporaryDirectory() as folder:
        if options.save_every:
            path = f"{folder}/model.keras"
            callbacks.append(keras.callbacks.ModelCheckpoint(path, save_freq=options.save_every))
        model.compile("sgd", "mse", steps_per_execution=options.steps_per_execution)
        if options.loop == "predict":
            inputs = dataset.map(lambda pictures, _: pictures)
            model.predict(inputs, steps=1_000_000, verbose=0, callbacks=[deadline])
            return deadline
        if options.fill:
            model.fit(dataset, epochs=1_000_000, verbose=0, callbacks=callbacks)
            return deadline
        model.fit(dataset, steps_per_epoch=1_000_000, epochs=1, verbose=0, callbacks=callbacks)
    return deadline


def loop(model: keras.Model, dataset: tf.data.Dataset, options: argparse.Namespace) -> Deadline:
    """A loop as it stands in TensorFlow's guide."""
    deadline, optimizer = Deadline(options.seconds), keras.optimizers.SGD()
    deadline.set_model(model)

    @tf.function
    def step(inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            error = model(inputs, training=True)[:, 0] - tf.cast(labels, tf.float32)
            loss = tf.reduce_mean(error**2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    for inputs, labels in dataset:
        step(inputs, labels)
        deadline.on_train_batch_end(0)
        if deadline.elapsed() > options.seconds:
            break
    return deadline


def main() -> None:
    """Train and give account."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--loop", choices=("fit", "own", "predict"), default="fit")
    parser.add_argument(
        "--source", choices=("dataset", "threads", "processes", "directory"), default="dataset"
    )
    parser.add_argument("--workers", type=int, default=1, help="of a PyDataset")
    parser.add_argument("--nap-ms", type=float, default=0.0, help="of each batch of a PyDataset")
    parser.add_argument("--mirrored", action="store_true")
    parser.add_argument("--legacy", action="store_true", help="tf_keras")
    parser.add_argument("--map", choices=(*FUNCTIONS, "generator"), default="plain")
    parser.add_argument("--serial", action="store_true")
    parser.add_argument("--no-prefetch", action="store_true")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--fill", type=int, default=0, help="shuffle so many decoded samples")
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--steps-per-execution", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    run = loop if options.loop == "own" else fit
    with contextlib.ExitStack() as scope:
        if options.mirrored:
            scope.enter_context(tf.distribute.MirroredStrategy().scope())
        model = make_model(options)
    done = run(model, make_dataset(options), options)
    steps = (done.steps - 1) * options.steps_per_execution
    account = {
        "steps": steps,
        "samples_per_s": steps * options.batch / done.elapsed(),
        "busy_frac": min(1.0, steps * options.step_ms / 1000 / done.elapsed()),
        "wait_frac": None,
    }
    print(json.dumps({"zoo": account}))


if __name__ == "__main__":
    main()
