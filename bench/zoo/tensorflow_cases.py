"""The zoo's cases for TensorFlow: tf.data under Keras's fit and in loops of their own.

They run in an environment of their own (`make zoo-tensorflow`). The device's time is chosen as
for the other cases: a fault leaves it waiting for a third of the time at least, a control hardly
at all.
"""

from bench.zoo.case import HEALTHY, Case, Pair
from bench.zoo.faults.groups import OneCore, Quota, ReadRate
from bench.zoo.faults.mounts import SlowMount
from bench.zoo.faults.preload import SlowReads

JOB = "tensorflow_images"
ONE_NODE = "tf.data runs decoding and transforming as one node, and gives no time for either."


def _prepare(limit: str) -> tuple[Pair, ...]:
    return (("transform", limit), ("decode", limit))


TENSORFLOW_CASES = [
    Case(
        name="tf-read-latency",
        sentence="Every read of a JPEG takes 10 ms longer; tf.data reads with a thread a core.",
        job=JOB,
        data="images",
        args="--step-ms 15",
        fault=SlowReads(delay_ms=10),
        truth=(("read", "latency"),),
    ),
    Case(
        name="tf-read-latency-mount",
        sentence="JPEGs on a mount where every read takes 10 ms longer.",
        job=JOB,
        data="images",
        args="--step-ms 15",
        fault=SlowMount(read_ms=10),
        truth=(("read", "latency"),),
    ),
    Case(
        name="tf-read-latency-loop",
        sentence="The same reads, in a loop `for x, y in dataset`.",
        job=JOB,
        data="images",
        args="--loop own --step-ms 15",
        fault=SlowReads(delay_ms=10),
        truth=(("read", "latency"),),
    ),
    Case(
        name="tf-read-metadata",
        sentence="JPEGs on a mount where open takes 15 ms and stat 3 ms.",
        job=JOB,
        data="images",
        args="--step-ms 15",
        fault=SlowMount(open_ms=15, getattr_ms=3),
        truth=(("read", "latency"),),
    ),
    Case(
        name="tf-read-bandwidth",
        sentence="JPEGs come from a disk that gives 3 MB/s.",
        job=JOB,
        data="images",
        args="--step-ms 15",
        fault=ReadRate(bytes_per_s=3_000_000),
        cold=True,
        truth=(("read", "bandwidth"),),
    ),
    Case(
        name="tf-serial-map",
        sentence="A function is mapped one call at a time (num_parallel_calls=1).",
        job=JOB,
        data="images",
        args="--map augmented --serial --batch 32 --step-ms 12",
        without="--step-ms 200",
        truth=_prepare("parallelism"),
        why_two=ONE_NODE,
    ),
    Case(
        name="tf-one-core",
        sentence="The job may use one core, on which tf.data decodes and resizes.",
        job=JOB,
        data="images",
        args="--batch 32 --step-ms 12",
        without="--step-ms 100",
        fault=OneCore(),
        truth=_prepare("cores"),
        why_two=ONE_NODE,
    ),
    Case(
        name="tf-quota",
        sentence="A quota of half a core stops tf.data's threads in most periods.",
        job=JOB,
        data="images",
        args="--batch 48 --step-ms 12",
        without="--step-ms 100",
        fault=Quota(0.5),
        truth=_prepare("cores"),
        why_two=ONE_NODE,
    ),
    Case(
        name="tf-generator",
        sentence="A plain Python generator gives one sample after the other.",
        job=JOB,
        data="images",
        args="--map generator --batch 16 --step-ms 8",
        without="--step-ms 200",
        truth=(("transform", "parallelism"), ("transform", "code")),
        why_two="One generator is one call at a time, and what it computes holds Python's lock.",
    ),
    Case(
        name="tf-python-lock",
        sentence="Parallel calls of a Python function take turns at the interpreter's lock.",
        job=JOB,
        data="images",
        args="--map python --batch 32 --step-ms 8",
        without="--step-ms 150",
        truth=(("transform", "code"),),
    ),
    Case(
        name="tf-no-prefetch",
        sentence="Batches are made only when they are asked for, one call at a time.",
        job=JOB,
        data="images",
        args="--map augmented --serial --no-prefetch --step-ms 20",
        without="--step-ms 200",
        truth=_prepare("parallelism"),
        why_two=ONE_NODE,
    ),
    Case(
        name="tf-checkpoint",
        sentence="Keras saves the whole model after every second step.",
        job=JOB,
        data="images",
        args="--step-ms 60 --width 512 --save-every 2",
        without="--save-every 0",
        truth=(("pause", "code"),),
    ),
    Case(
        name="tf-healthy-fit",
        sentence="fit, fed in time.",
        job=JOB,
        data="images",
        args="--step-ms 80",
        truth=(HEALTHY,),
    ),
    Case(
        name="tf-healthy-loop",
        sentence="A loop of its own, fed in time.",
        job=JOB,
        data="images",
        args="--loop own --step-ms 80",
        truth=(HEALTHY,),
    ),
]
