"""The zoo's cases for JAX: grain, generators, queues and torch loaders that feed it.

They run in an environment of their own (`make zoo-jax`). The device's time is chosen as for the
other cases: a fault leaves it waiting for a third of the time at least, a control hardly at all.
"""

from bench.zoo.case import HEALTHY, Case, Pair
from bench.zoo.faults.groups import OneCore, Quota
from bench.zoo.faults.mounts import SlowMount
from bench.zoo.faults.preload import SlowReads

JOB = "jax_arrays"


def _prepare(limit: str) -> tuple[Pair, ...]:
    return (("transform", limit), ("decode", limit))


ONE = "Decoding and transforming are one function, which a line of code alone tells apart."

JAX_CASES = [
    Case(
        name="jax-generator-read",
        sentence="A generator reads each file in turn, and every read takes 8 ms longer.",
        job=JOB,
        data="files",
        args="--source generator --work read --step-ms 20",
        fault=SlowReads(delay_ms=8),
        truth=(("read", "latency"),),
    ),
    Case(
        name="jax-generator-mount",
        sentence="A generator reads files from a mount where open takes 10 ms.",
        job=JOB,
        data="files",
        args="--source generator --work read --step-ms 20",
        fault=SlowMount(open_ms=10),
        truth=(("read", "latency"),),
    ),
    Case(
        name="jax-generator-parse",
        sentence="A generator parses each sample in Python in the training process.",
        job=JOB,
        data="files",
        args="--source generator --work parse --batch 32 --step-ms 4",
        without="--work none",
        truth=_prepare("parallelism"),
        why_two=ONE,
    ),
    Case(
        name="jax-grain-no-threads",
        sentence="grain reads nothing ahead (num_threads=0), and every read takes 8 ms longer.",
        job=JOB,
        data="files",
        args="--source map --work read --threads 0 --step-ms 20",
        fault=SlowReads(delay_ms=8),
        truth=(("read", "latency"),),
    ),
    Case(
        name="jax-grain-few-threads",
        sentence="Two threads of grain's read ahead, and every read takes 20 ms longer.",
        job=JOB,
        data="files",
        args="--source map --work read --threads 2 --buffer 16 --step-ms 20",
        fault=SlowReads(delay_ms=20),
        truth=(("read", "latency"),),
    ),
    Case(
        name="jax-grain-gil",
        sentence="Sixteen threads of grain's parse in Python and take turns at its lock.",
        job=JOB,
        data="files",
        args="--source map --work parse --batch 64 --threads 16 --step-ms 4",
        without="--work none",
        truth=(("transform", "code"), *_prepare("parallelism")),
        why_two="Of what takes turns at one lock, more processes are as good an answer.",
    ),
    Case(
        name="jax-grain-ask",
        sentence="Four threads of grain's wait for a client that keeps to a rate.",
        job=JOB,
        data="files",
        args="--source map --work ask --threads 2 --buffer 16 --batch 16 --step-ms 8",
        without="--work none",
        truth=(("fetch", "parallelism"),),
    ),
    Case(
        name="jax-grain-one-worker",
        sentence="One worker process of grain's computes.",
        job=JOB,
        data="files",
        args="--source mp --workers 1 --threads 1 --work compute --batch 16 --step-ms 6",
        without="--work none",
        truth=_prepare("parallelism"),
        why_two=ONE,
    ),
    Case(
        name="jax-grain-one-core",
        sentence="Two workers of grain's compute, on one core.",
        job=JOB,
        data="files",
        args="--source mp --workers 2 --threads 1 --work compute --batch 16 --step-ms 6",
        fault=OneCore(),
        truth=_prepare("cores"),
        why_two=ONE,
    ),
    Case(
        name="jax-grain-quota",
        sentence="Two workers of grain's compute under a quota of half a core.",
        job=JOB,
        data="files",
        args="--source mp --workers 2 --threads 1 --work compute --batch 16 --step-ms 10",
        fault=Quota(cores=0.5),
        truth=_prepare("cores"),
        why_two=ONE,
    ),
    Case(
        name="jax-torch-serial",
        sentence="A torch DataLoader without workers feeds JAX, and parses in Python.",
        job=JOB,
        data="files",
        args="--source torch --work parse --batch 32 --step-ms 4",
        without="--work none",
        truth=_prepare("parallelism"),
        why_two=ONE,
    ),
    Case(
        name="jax-queue-read",
        sentence="One thread fills a queue, and every read takes 8 ms longer.",
        job=JOB,
        data="files",
        args="--source queue --work read --step-ms 20",
        fault=SlowReads(delay_ms=8),
        truth=(("read", "latency"),),
    ),
    Case(
        name="jax-recompile",
        sentence="Every batch has another length, for which the step is compiled anew.",
        job=JOB,
        data="files",
        args="--source generator --work none --batch 128 --step-ms 10 --recompile",
        truth=(("pause", "code"),),
    ),
    Case(
        name="jax-healthy-generator",
        sentence="A generator that costs nothing.",
        job=JOB,
        data="files",
        args="--source generator --work none --step-ms 20",
        truth=(HEALTHY,),
    ),
    Case(
        name="jax-healthy-grain",
        sentence="grain reads ahead faster than the device computes.",
        job=JOB,
        data="files",
        args="--source map --work read --step-ms 30",
        truth=(HEALTHY,),
    ),
    Case(
        name="jax-healthy-hidden",
        sentence="A generator takes 4 ms of parsing, and the device has work in its queue.",
        job=JOB,
        data="files",
        args="--source generator --work parse --batch 4 --real 400 --step-ms 60",
        truth=(HEALTHY,),
    ),
]
