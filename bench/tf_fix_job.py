"""Trains on JPEGs through tf.data, 10 ms a step; prints its rate and a hash of its samples."""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

SIDE, BATCH, LAST = 16, 16, 60


def load(path: tf.Tensor) -> tf.Tensor:
    """A small picture; scaled while it is decoded, so that reading is what takes time."""
    picture = tf.io.decode_jpeg(tf.io.read_file(path), channels=3, ratio=8)
    return tf.image.resize(picture, (SIDE, SIDE)) / 255.0


def main() -> None:
    """Train and print."""
    paths = [str(path) for path in sorted(Path(sys.argv[1]).rglob("*.jpg"))]
    pool, steps = int(sys.argv[2]), int(sys.argv[3])
    dataset = tf.data.Dataset.from_tensor_slices(paths).shuffle(500, seed=1).repeat()
    dataset = dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH).prefetch(2)
    if pool:
        options = tf.data.Options()
        options.threading.private_threadpool_size = pool
        dataset = dataset.with_options(options)
    digest, ends = hashlib.sha256(), []
    for pictures in dataset.take(steps):
        digest.update(pictures.numpy().tobytes())
        time.sleep(0.01)
        ends.append(time.perf_counter())
    rate = BATCH * (LAST - 1) / (ends[-1] - ends[-LAST])
    print(json.dumps({"rate": rate, "samples": digest.hexdigest()}))


if __name__ == "__main__":
    main()
