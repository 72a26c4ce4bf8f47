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
    data: str = "files",
) -> Case:
    return Case(
        name=f"any-{name}",
        sentence=sentence,
        job=job,
        data=data,
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
    _case(
        "nodes-read",
        "One thread of torchdata's ParallelMapper, and every read takes 8 ms longer.",
        "--source nodes --workers 1 --work read --batch 8",
        READ,
        job=LIBRARY,
        fault=SLOW,
    ),
    _case(
        "node-processes-read",
        "One process of torchdata's ParallelMapper, and every read takes 8 ms longer.",
        "--source node-processes --workers 1 --work read --batch 8",
        READ,
        job=LIBRARY,
        fault=SLOW,
    ),
    _case(
        "nodes-gil",
        "Three threads of torchdata's ParallelMapper parse in Python, whose lock they share.",
        f"--source nodes --workers 3 --work parse --batch 32 {FAST}",
        ("transform", "code"),
        *_prepare("parallelism"),
        job=LIBRARY,
        without="--work none",
        why_two=LOCK,
    ),
    _case(
        "spdl-read",
        "SPDL reads with one thread, and every read takes 8 ms longer.",
        "--source spdl --workers 1 --work read --batch 8",
        READ,
        job=LIBRARY,
        fault=SLOW,
    ),
    _case(
        "spdl-compute",
        "SPDL computes with one thread; a core is free.",
        f"--source spdl --workers 1 --work compute --batch 16 {FAST}",
        *_prepare("parallelism"),
        job=LIBRARY,
        without="--work none",
        why_two=ONE,
    ),
    _case(
        "hf-map-read",
        "A transform of a data set of `datasets` reads a file for each row, 8 ms longer.",
        "--source hf-map --work read --batch 8",
        READ,
        job=LIBRARY,
        fault=SLOW,
    ),
    _case(
        "hf-stream-parse",
        "A streamed data set is mapped by Python in the training process.",
        f"--source hf-stream --work parse --batch 32 {FAST}",
        *_prepare("parallelism"),
        job=LIBRARY,
        without="--work none",
        why_two=ONE,
    ),
    _case(
        "hf-loader-read",
        "The same behind a DataLoader with one worker, and every read takes 8 ms longer.",
        "--source hf-loader --workers 1 --work read --batch 8",
        READ,
        job=LIBRARY,
        fault=SLOW,
    ),
    _case(
        "webdataset-parse",
        "WebDataset without a loader parses in Python in the training process.",
        f"--source webdataset --work parse --batch 32 {FAST}",
        *_prepare("parallelism"),
        job=LIBRARY,
        data="tars",
        without="--work none",
        why_two=ONE,
    ),
    _case(
        "webloader-compute",
        "WebLoader computes with one worker; a core is free.",
        f"--source webloader --workers 1 --work compute --batch 16 {FAST}",
        *_prepare("parallelism"),
        job=LIBRARY,
        data="tars",
        without="--work none",
        why_two=ONE,
    ),
    _case(
        "mosaic-read",
        "MosaicML Streaming with one worker whose reads take 8 ms longer.",
        "--source mosaic --workers 1 --work read --batch 8",
        READ,
        job=LIBRARY,
        fault=SLOW,
    ),
    _case(
        "litdata-mount",
        "litdata with one worker that reads from a mount where open takes 10 ms.",
        "--source litdata --workers 1 --work read --batch 16 --sample-ms 0.5",
        READ,
        job=LIBRARY,
        fault=SlowMount(open_ms=10),
    ),
    _case(
        "dispatcher-read",
        "Accelerate's dispatcher over one worker, and every read takes 8 ms longer.",
        "--source dispatcher --workers 1 --work read --batch 8",
        READ,
        job=LIBRARY,
        fault=SLOW,
    ),
    _case(
        "ray-ask",
        "One actor of Ray Data waits for a client that keeps to a rate.",
        f"--source ray-numpy --workers 1 --work ask --batch 16 {FAST}",
        ("fetch", "parallelism"),
        job=LIBRARY,
        without="--work none",
    ),
    _case(
        "healthy-nodes",
        "Two threads of torchdata's ParallelMapper read faster than the device computes.",
        "--source nodes --workers 2 --work read --batch 16",
        HEALTHY,
        job=LIBRARY,
    ),
    _case(
        "healthy-spdl",
        "SPDL reads faster than the device computes.",
        "--source spdl --workers 2 --work read --batch 16",
        HEALTHY,
        job=LIBRARY,
    ),
    _case(
        "healthy-hf-map",
        "A data set of `datasets` that costs next to nothing.",
        "--source hf-map --work none --batch 16",
        HEALTHY,
        job=LIBRARY,
    ),
    _case(
        "healthy-webloader",
        "WebLoader with two workers that read faster than the device computes.",
        "--source webloader --workers 2 --work none --batch 16",
        HEALTHY,
        job=LIBRARY,
        data="tars",
    ),
    _case(
        "healthy-mosaic",
        "MosaicML Streaming with two workers that read faster than the device computes.",
        "--source mosaic --workers 2 --work read --batch 16",
        HEALTHY,
        job=LIBRARY,
    ),
]
