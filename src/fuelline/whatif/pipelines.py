"""Sources other than a DataLoader: what of them the pipeline model covers, and how they are set.

Threads of tf.data stand in the model for workers: as many as calls can run at once. A batch's
samples are shared out among them, so that all work on one batch, and the queue is as long as the
buffer at the end of the pipeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.trials import BUFFERED, TF_DATA, risk_of, write_threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.trials import Setting
    from fuelline.schema.run.recording import LoaderFacts

__all__ = ["TF_DATA", "find_unlike", "is_on_demand", "risk_of_settings", "write_settings"]

PYDATASET = "keras.PyDataset"
_AHEAD = ("Prefetch", "MapAndBatch", "Generator")
"""Nodes that make batches before they are asked for, or whose order is Python's own affair."""
_CALLS = ("Map", "Interleave", "Filter")
_OTHER_NUMBERS = "random numbers that the function draws from TensorFlow come in another order"


def find_unlike(facts: Facts) -> str:
    """Why the model does not cover the source that feeds the steps; empty if it does."""
    loader = facts.loader
    if loader is None or loader.framework in {"", PYDATASET}:
        return ""
    if loader.framework != TF_DATA:
        return f"the pipeline model does not cover {loader.framework} yet"
    if facts.fetch_lines or any("Generator" in node.name for node in loader.nodes):
        return (
            "Python in a tf.data pipeline runs one call at a time, and what more calls would gain "
            "depends on how long each holds Python's lock, which is not measured"
        )
    if not loader.nodes:
        return "tf.data told no stages of this pipeline"
    return ""


def is_on_demand(loader: LoaderFacts) -> bool:
    """Whether a batch is begun only when it is asked for: no buffer at the end of the pipeline."""
    names = [node.name for node in loader.nodes]
    return bool(names) and not any(word in name for word in _AHEAD for name in names)


def write_settings(settings: Sequence[Setting], loader: LoaderFacts | None) -> str:
    """The settings in the words of the source; empty for a DataLoader."""
    if loader is None or not loader.framework:
        return ""
    value = {setting.knob: int(setting.value) for setting in settings}
    if loader.framework == PYDATASET:
        workers = value.get("num_workers", loader.num_workers or 1)
        depth = value.get("prefetch_factor")
        queue = "" if depth is None else f", max_queue_size={depth * workers}"
        return f"PyDataset(workers={workers}, use_multiprocessing=True{queue})"
    words: list[str] = []
    if "num_workers" in value:
        if not is_tuned(loader):
            words.append("dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)")
        words.append(write_threads(value["num_workers"]))
    if "prefetch_factor" in value:
        words.append(BUFFERED)
    return "; ".join(words)


def is_tuned(loader: LoaderFacts) -> bool:
    """Whether tf.data itself chooses how many calls of its functions run at once."""
    calls = [node for node in loader.nodes if any(word in node.name for word in _CALLS)]
    return any(node.tunable for node in calls)


def risk_of_settings(settings: Sequence[Setting], loader: LoaderFacts | None) -> str:
    """What they may change of the samples that training sees."""
    if loader is None or not loader.framework:
        return risk_of(settings, loader)
    is_more = any(setting.knob == "num_workers" for setting in settings)
    if loader.framework == PYDATASET:
        return "random numbers are drawn in each process anew; each needs memory" if is_more else ""
    return _OTHER_NUMBERS if is_more and not is_tuned(loader) else ""
