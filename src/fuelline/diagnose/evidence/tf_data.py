"""What would help a tf.data pipeline, in its own words. The rules are those of every source.

What keeps every batch bit for bit: the size of the thread pool, a buffer at the end. Calls that run
at once keep the order, but not the random numbers that a function draws from TensorFlow.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.diagnose.rule import count_workers, gain_of_workers, workers_now
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.readings import value_of

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.run.recording import LoaderFacts

TF_DATA = "tf.data"
PYDATASET = "keras.PyDataset"
MOST_THREADS = 16
"""Of a pool that waits for storage: this many made 6.7 times as many batches on two cores; a thread
that waits costs a stack."""


def is_tf_data(loader: LoaderFacts | None) -> bool:
    """Whether a tf.data pipeline feeds the steps, be it through one of Keras's own sources."""
    return loader is not None and loader.framework in {TF_DATA, PYDATASET}


def is_pydataset(loader: LoaderFacts | None) -> bool:
    """Whether batches are made by a PyDataset of Keras."""
    return loader is not None and loader.framework == PYDATASET


def has_threads(loader: LoaderFacts | None) -> bool:
    """Whether threads of the training process make the batches: they share Python's lock."""
    return is_tf_data(loader) and loader is not None and loader.context != "processes"


def node_evidence(facts: Facts) -> list[Evidence]:
    """The stages of the pipeline, in the order that samples go through them."""
    loader = facts.loader
    if loader is None or not loader.nodes:
        return []
    order = sorted(loader.nodes, key=lambda node: -node.id)
    names = [node.name for node in order if node.id]
    return [Evidence(what=f"tf.data runs {' > '.join(names)}")] if names else []


def more_processes(facts: Facts) -> Remedy:
    """Let more processes make batches of a PyDataset, each with an interpreter of its own."""
    workers = count_workers(facts)
    return Remedy(
        setting=f"PyDataset(workers={workers}, use_multiprocessing=True)",
        why="each process then makes a batch of its own while the others make theirs; threads "
        "take turns at Python's lock",
        applicability="unsafe",
        risk="random numbers are drawn in each process anew; each needs memory",
        at_most_speedup=gain_of_workers(facts.loader, workers),
        question=WhatIf(workers=workers),
    )


def leave_python(facts: Facts) -> Remedy:
    """Python of the job's in the pipeline: one call at a time, whatever tf.data is told."""
    if is_pydataset(facts.loader):
        return more_processes(facts)
    return Remedy(
        setting="prepare samples with TensorFlow operations in dataset.map, instead of Python "
        "(a generator, tf.py_function, tf.numpy_function); or in processes: keras.utils.PyDataset "
        "with workers=N and use_multiprocessing=True",
        why="Python runs one thread of a process at a time, and a generator gives one sample after "
        "the other, so that more parallel calls only make the queue longer",
        applicability="display",
        risk="other operations may round differently",
        cost="work on that function",
    )


def _is_generated(facts: Facts) -> bool:
    nodes = facts.loader.nodes if facts.loader is not None else []
    return any(node.name.startswith("Generator") for node in nodes)


def more_calls(facts: Facts) -> Remedy:
    """Let a stage that computes run several calls at once."""
    if facts.fetch_lines or _is_generated(facts) or is_pydataset(facts.loader):
        return leave_python(facts)
    allowed = math.floor(value_of(facts.cores.allowed) or 1.0)
    calls = max(workers_now(facts) + 1, min(count_workers(facts), allowed))
    return Remedy(
        setting="dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)",
        why="calls of the function then run on all cores that the job may use, and samples keep "
        "their order",
        applicability="unsafe",
        risk="random numbers that the function draws from TensorFlow come in another order",
        at_most_speedup=gain_of_workers(facts.loader, calls),
        question=WhatIf(workers=calls),
    )


def bigger_pool(facts: Facts) -> Remedy:
    """Let more calls wait for storage at once: they need threads, and no cores."""
    if _is_generated(facts) or is_pydataset(facts.loader):
        return leave_python(facts)
    tunable = any(node.tunable for node in facts.loader.nodes) if facts.loader else False
    threads = max(MOST_THREADS, workers_now(facts) + 1)
    calls = "" if tunable else "; dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)"
    return Remedy(
        setting=f"options = tf.data.Options(); options.threading.private_threadpool_size = "
        f"{threads}; dataset = dataset.with_options(options){calls}",
        why="each read waits for a round trip, so more reads at once bring more data; by default "
        "tf.data has as many threads as cores, though waiting threads need none",
        applicability="safe" if tunable else "unsafe",
        risk=""
        if tunable
        else "random numbers that the function draws from TensorFlow come in another order",
        at_most_speedup=gain_of_workers(facts.loader, threads),
        question=WhatIf(workers=threads),
        cost=f"{threads - workers_now(facts)} more threads, and the batches that they prepare",
    )


def nearer_files() -> Remedy:
    """Get rid of the slow storage."""
    return Remedy(
        setting="copy the data to a local disk before training, or dataset.cache() right after "
        "what reads it (cache('/local/file') keeps it on disk)",
        why="a local read takes microseconds where this one takes milliseconds; --cache and "
        "--packed of fuelline do not reach what TensorFlow reads by itself",
        applicability="display",
        cost="the data set's size in memory or on a local disk; the first epoch reads as before",
        question=WhatIf(storage="warm"),
    )


def packed_files() -> Remedy:
    """Get rid of the many files."""
    return Remedy(
        setting="write the samples into TFRecord files of about 100 MB and read those with "
        "tf.data.TFRecordDataset",
        why="one open and sequential reads replace thousands of opens",
        applicability="display",
        cost="disk space for a second copy of the data set",
        question=WhatIf(storage="packed"),
    )


def longer_epochs() -> Remedy:
    """Keep the pipeline between epochs."""
    return Remedy(
        setting="dataset.repeat(), with steps_per_epoch=N in fit",
        why="the pipeline, its buffers and its threads then live through all epochs",
        applicability="unsafe",
        risk="a shuffle placed after repeat() mixes samples of neighbouring epochs",
    )
