"""Every private part of TensorFlow and Keras that changing a pipeline stands on.

Nothing is imported: these modules are loaded once there is an iterator. What a release lacks leaves
its pipelines alone, and the report says so.
"""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = [
    "ITERATORS", "RESOURCE", "TRAINER", "describe", "find_missing", "find_own_pool", "is_eager",
    "keeps_order", "read_model", "restore", "save", "widen",
]  # fmt: skip

ITERATORS = "tensorflow.python.data.ops.iterator_ops"
TRAINER = "keras.src.backend.tensorflow.trainer"
RESOURCE = "_iterator_resource"
_OPS = "tensorflow.python.ops.gen_dataset_ops"
_MODEL_OPS = "tensorflow.python.ops.gen_experimental_dataset_ops"
_MODEL_PROTO = "tensorflow.core.framework.model_pb2"
_OPTIONS = "tensorflow.python.data.ops.options"
_CONTEXT = "tensorflow.python.eager.context"
_REFUSE_STATE = 2
"""Policy of saving an iterator: state outside of tf.data, as of a random operation, is refused."""
_NEEDED = (
    (_OPS, "serialize_iterator"),
    (_OPS, "deserialize_iterator"),
    (_MODEL_OPS, "iterator_get_model_proto"),
    (_MODEL_PROTO, "ModelProto"),
    (_OPTIONS, "Options"),
    (_CONTEXT, "executing_eagerly"),
)


def find_missing() -> str:
    """What this TensorFlow lacks, in words; empty if nothing."""
    missing = [f"{module}.{name}" for module, name in _NEEDED if not _has(module, name)]
    return f"this TensorFlow has no {', '.join(missing)}" if missing else ""


def _has(module: str, name: str) -> bool:
    return hasattr(sys.modules.get(module), name)


def is_eager() -> bool:
    """Whether operations run at once, and are not being put into a graph."""
    return bool(sys.modules[_CONTEXT].executing_eagerly())


def read_model(iterator: Any) -> Any:
    """tf.data's account of an iterator; None if it keeps none."""
    try:
        told = sys.modules[_MODEL_OPS].iterator_get_model_proto(getattr(iterator, RESOURCE))
    except Exception as refusal:
        if type(refusal).__name__ == "NotFoundError":
            return None
        raise
    return sys.modules[_MODEL_PROTO].ModelProto.FromString(told.numpy())


def save(iterator: Any) -> Any:
    """Where an iterator stands, with what its buffers hold."""
    return sys.modules[_OPS].serialize_iterator(getattr(iterator, RESOURCE), _REFUSE_STATE)


def restore(iterator: Any, state: Any) -> None:
    """Let an iterator of the same stages go on from there."""
    sys.modules[_OPS].deserialize_iterator(getattr(iterator, RESOURCE), state)


def widen(dataset: Any, threads: int, *, is_buffered: bool) -> Any:
    """The same dataset with another pool of threads, and a buffer at its end if asked for."""
    options = sys.modules[_OPTIONS].Options()
    options.threading.private_threadpool_size = threads
    if is_buffered:
        dataset = dataset.prefetch(-1)  # AUTOTUNE
    return dataset.with_options(options)


def find_own_pool(dataset: Any) -> int:
    """Threads of the pool as the job has it."""
    asked = dataset.options().threading.private_threadpool_size
    return int(asked) if asked else len(os.sched_getaffinity(0))


def keeps_order(dataset: Any) -> bool:
    """Whether the job has not allowed batches in whatever order they are ready."""
    return dataset.options().deterministic is not False


def describe(dataset: Any) -> str:
    """What the report calls it."""
    return f"tf.data {type(dataset).__name__.strip('_')}"
