"""The zoo's cases for sources of batches that are no DataLoader: somebody's own, and libraries'.

Those of libraries run in an environment of their own (`make zoo-any`).
"""

from bench.zoo.case import HEALTHY, Case, Pair
from bench.zoo.fault import NOTHING, Fault
from bench.zoo.faults.groups import OneCore, Quota
from bench.zoo.faults.mounts import SlowMount
from bench.zoo.faults.preload import SlowReads

OWN, LIBRARY = "own_source", "library_source"


def _prepare(limit: str) -> tuple[Pair, ...]:
    return (("transform", limit), ("decode", limit))


def _case(
    name: str,
    sentence: str,
    args: str,
    *truth: Pair,
    job: str = OWN,
    fault: Fault = NOTHING,
    without: str = "",
    why_two: str = "",
) -> Case:
    return Case(
        name=f"any-{name}",
        sentence=sentence,
        job=job,
        data="files",
        args=args,
        truth=truth,
        fault=fault,
        without=without,
        why_two=why_two,
    )


READ: Pair = ("read", "latency")
SLOW = SlowReads(delay_ms=8)
FAST = "--fixed-ms 2 --sample-ms 0.1"
ONE = "Decoding and transforming are one function, which a line of code alone tells apart."
LOCK = "Of what takes turns at one lock, more processes are as good an answer."

ANY_CASES = [
    _case(
        "generator-read",
        "A generator reads each file in turn, and every read takes 8 ms longer.",
        "--source generator --work read --batch 8",
        READ,
        fault=SLOW,
    ),
    _case(
        "generator-parse",
        "A generator parses in Python in the training process.",
        f"--source generator --work parse --batch 32 {FAST}",
        *_prepare("parallelism"),
        without="--work none",
        why_two=ONE,
    ),
    _case(
        "generator-ask",
        "A generator waits for a client that keeps to a rate.",
        f"--source generator --work ask --batch 4 {FAST}",
        ("fetch", "parallelism"),
        without="--work none",
    ),
    _case(
        "thread-read",
        "One thread fills a queue, and every read takes 8 ms longer.",
        "--source threads --workers 1 --work read --batch 8",
        READ,
        fault=SLOW,
    ),
    _case(
        "threads-gil",
        "Three threads parse in Python and take turns at its lock.",
        f"--source threads --workers 3 --work parse --batch 32 {FAST}",
        ("transform", "code"),
        *_prepare("parallelism"),
        without="--work none",
        why_two=LOCK,
    ),
    _case(
        "thread-compute",
        "One thread computes.",
        f"--source threads --workers 1 --work compute --batch 16 {FAST}",
        *_prepare("parallelism"),
        without="--work none",
        why_two=ONE,
    ),
    _case(
        "simplequeue-read",
        "A queue written in C, and every read takes 8 ms longer.",
        "--source simplequeue --workers 1 --work read --batch 8",
        READ,
        fault=SLOW,
    ),
    _case(
        "imap-compute",
        "A pool of one process computes.",
        f"--source imap --workers 1 --work compute --batch 16 {FAST}",
        *_prepare("parallelism"),
        without="--work none",
        why_two=ONE,
    ),
    _case(
        "pool-one-core",
        "A pool of two processes computes, on one core.",
        f"--source pool --workers 2 --work compute --batch 16 {FAST}",
        *_prepare("cores"),
        fault=OneCore(),
        why_two=ONE,
    ),
    _case(
        "processes-quota",
        "Two processes with a queue compute, under a quota of half a core.",
        f"--source processes --workers 2 --work compute --batch 16 {FAST}",
        *_prepare("cores"),
        fault=Quota(cores=0.5),
        why_two=ONE,
    ),
    _case(
        "futures-ask",
        "Two threads of an executor wait for a client that keeps to a rate.",
        f"--source futures --workers 2 --work ask --batch 8 {FAST}",
        ("fetch", "parallelism"),
        without="--work none",
    ),
    _case(
        "process-futures-mount",
        "Two processes of an executor read from a mount where open takes 10 ms.",
        "--source process-futures --workers 2 --work read --batch 16 --sample-ms 0.5",
        READ,
        fault=SlowMount(open_ms=10),
    ),
    _case(
        "pipe-compute",
        "One process at the other end of a pipe computes.",
        f"--source pipe --work compute --batch 16 {FAST}",
        *_prepare("parallelism"),
        without="--work none",
        why_two=ONE,
    ),
    _case(
        "coroutines-read",
        "Two threads of an event loop read, and every read takes 8 ms longer.",
        "--source coroutines --workers 2 --work read --batch 16 --sample-ms 0.5",
        READ,
        fault=SLOW,
    ),
    _case(
        "healthy-generator",
        "A generator that costs nothing.",
        "--source generator --work none",
        HEALTHY,
    ),
    _case(
        "healthy-hidden",
        "A generator parses while the device works off its queue.",
        "--source generator --work parse --batch 16 --sample-ms 2",
        HEALTHY,
    ),
    _case(
        "healthy-threads",
        "Two threads read ahead faster than the device computes.",
        "--source threads --workers 2 --work read",
        HEALTHY,
    ),
    _case(
        "healthy-pool",
        "A pool computes ahead faster than the device.",
        "--source pool --workers 2 --work read --sample-ms 2",
        HEALTHY,
    ),
]
