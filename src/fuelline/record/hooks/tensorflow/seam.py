"""Every private part of TensorFlow and Keras that the hooks stand on; nothing else names one.

Looked up when hooks are put in: what a release lacks is a blindspot with its name, not an error.
"""

import os
import sys
from typing import Any

import tensorflow

from fuelline.record.hooks.guest import Framework

__all__ = [
    "ITERATORS", "LEGACY", "MULTI_DEVICE", "PYDATASET", "RESOURCE", "TENSORFLOW", "TRAINER",
    "count_batches", "find_parser", "find_unmet",
]  # fmt: skip

ITERATORS = "tensorflow.python.data.ops.iterator_ops"
"""`OwnedIterator`: what `for x in dataset` and Keras take batches from."""
MODEL_OPS = "tensorflow.python.ops.gen_experimental_dataset_ops"
MODEL_PROTO = "tensorflow.core.framework.model_pb2"
"""tf.data's own account of its nodes; TensorFlow has both modules loaded with tf.data itself."""
DATASET_OPS = "tensorflow.python.ops.gen_dataset_ops"
CONTEXT = "tensorflow.python.eager.context"
TRAINER = "keras.src.backend.tensorflow.trainer"
LEGACY = "tf_keras.src.engine.training"
"""The trainer of Keras 2."""
PYDATASET = "keras.src.trainers.data_adapters.py_dataset_adapter"
MULTI_DEVICE = "tensorflow.python.data.ops.multi_device_iterator_ops"
"""`OwnedMultiDeviceIterator`: what a strategy takes batches from."""
RESOURCE = "_iterator_resource"
"""Attribute of an iterator: what the model is asked for with."""

_NEEDED = {
    "pipeline": (
        (ITERATORS, "OwnedIterator._create_iterator"),
        (ITERATORS, "OwnedIterator.__next__"),
        (CONTEXT, "executing_eagerly"),
    ),
    "several_devices": ((MULTI_DEVICE, "OwnedMultiDeviceIterator.__init__"),),
    "training": (
        (TRAINER, "TensorFlowTrainer.make_train_function"),
        (TRAINER, "TensorFlowTrainer.make_test_function"),
        (TRAINER, "TensorFlowTrainer.make_predict_function"),
        (TRAINER, "TensorFlowTrainer.evaluate"),
        (MODEL_OPS, "iterator_get_model_proto"),
        (MODEL_PROTO, "ModelProto"),
    ),
    "legacy_training": (
        (LEGACY, "Model.make_train_function"),
        (LEGACY, "Model.make_test_function"),
        (LEGACY, "Model.make_predict_function"),
        (MODEL_OPS, "iterator_get_model_proto"),
        (MODEL_PROTO, "ModelProto"),
    ),
    "pydataset": (
        (PYDATASET, "get_index"),
        (PYDATASET, "PyDatasetAdapter._get_iterator"),
        (PYDATASET, "_DATA_POOLS"),
    ),
}
"""By the part that needs them."""


def find_unmet(part: str) -> str:
    """What this TensorFlow lacks of what a part of the hooks needs; empty if nothing."""
    missing = [f"{module}.{name}" for module, name in _NEEDED.get(part, ()) if _lacks(module, name)]
    return f"tensorflow {tensorflow.__version__} has no {', '.join(missing)}" if missing else ""


def find_parser() -> tuple[Any, Any] | None:
    """The operation that gives an iterator's model, and what reads it; None where there is none."""
    if _lacks(MODEL_OPS, "iterator_get_model_proto") or _lacks(MODEL_PROTO, "ModelProto"):
        return None
    ask = sys.modules[MODEL_OPS].iterator_get_model_proto
    return ask, sys.modules[MODEL_PROTO].ModelProto.FromString


def count_batches(dataset: Any) -> int:
    """Elements of a dataset; -1 if it has no end, or tf.data cannot tell without reading it."""
    variant = getattr(dataset, "_variant_tensor", None)
    if variant is None or _lacks(DATASET_OPS, "dataset_cardinality") or _is_tracing():
        return -1
    return max(-1, int(sys.modules[DATASET_OPS].dataset_cardinality(variant)))


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
