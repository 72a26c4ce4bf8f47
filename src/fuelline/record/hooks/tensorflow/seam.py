"""Every private part of TensorFlow and Keras that the hooks stand on; nothing else names one.

Looked up when hooks are put in: what a release lacks is a blindspot with its name, not an error.
"""

import os
import sys
from typing import Any

import tensorflow

from fuelline.record.hooks.guest import Framework

__all__ = ["ITERATORS", "RESOURCE", "TENSORFLOW", "TRAINER", "find_parser", "find_unmet"]

ITERATORS = "tensorflow.python.data.ops.iterator_ops"
"""`OwnedIterator`: what `for x in dataset` and Keras take batches from."""
MODEL_OPS = "tensorflow.python.ops.gen_experimental_dataset_ops"
MODEL_PROTO = "tensorflow.core.framework.model_pb2"
"""tf.data's own account of its nodes; TensorFlow has both modules loaded with tf.data itself."""
CONTEXT = "tensorflow.python.eager.context"
TRAINER = "keras.src.backend.tensorflow.trainer"
RESOURCE = "_iterator_resource"
"""Attribute of an iterator: what the model is asked for with."""

_NEEDED = {
    "pipeline": (
        (ITERATORS, "OwnedIterator._create_iterator"),
        (ITERATORS, "OwnedIterator.__next__"),
        (CONTEXT, "executing_eagerly"),
    ),
    "training": (
        (TRAINER, "TensorFlowTrainer.make_train_function"),
        (TRAINER, "TensorFlowTrainer.evaluate"),
        (MODEL_OPS, "iterator_get_model_proto"),
        (MODEL_PROTO, "ModelProto"),
    ),
}
"""By the file of ours that needs them."""


def find_unmet(file: str) -> str:
    """What this TensorFlow lacks of what one of our files needs; empty if nothing."""
    missing = [f"{module}.{name}" for module, name in _NEEDED.get(file, ()) if _lacks(module, name)]
    return f"tensorflow {tensorflow.__version__} has no {', '.join(missing)}" if missing else ""


def find_parser() -> tuple[Any, Any] | None:
    """The operation that gives an iterator's model, and what reads it; None where there is none."""
    if _lacks(MODEL_OPS, "iterator_get_model_proto") or _lacks(MODEL_PROTO, "ModelProto"):
        return None
    ask = sys.modules[MODEL_OPS].iterator_get_model_proto
    return ask, sys.modules[MODEL_PROTO].ModelProto.FromString


def _lacks(module: str, name: str) -> bool:
    owner: Any = sys.modules.get(module)
    for part in name.split("."):
        owner = getattr(owner, part, None)
    return owner is None


def _is_tracing() -> bool:
    """Whether TensorFlow is making a graph of the caller: what it calls then runs only once."""
    return not sys.modules[CONTEXT].executing_eagerly()


TENSORFLOW = Framework(
    package="tensorflow",
    folder=os.path.dirname(str(tensorflow.__file__)) + os.sep,  # noqa: PTH120 - no pathlib here
    handlers=(),
    is_tracing=_is_tracing,
)
