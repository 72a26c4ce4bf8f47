"""All cases of the zoo, as data: faulty inputs first, then handoff, compute, pauses and controls.

Those of several ranks are in `rank_cases.py`.
The device's time is chosen against the job's own rate on two cores, so that a fault leaves the
device waiting for a third of the time at least, and a control for less than three hundredths.
"""

from bench.zoo.case import DATA, HEALTHY, Case
from bench.zoo.fault import Both
from bench.zoo.faults.groups import Hogs, MemoryLimit, OneCore, Quota, ReadRate
from bench.zoo.faults.mounts import SlowMount
from bench.zoo.faults.neighbours import Neighbour
from bench.zoo.faults.preload import SlowReads
from bench.zoo.rank_cases import RANK_CASES

MB = 1_000_000
NEIGHBOURS_FILE = DATA / "packed" / "records.bin"

READ = [
    Case(
        name="read-bandwidth-images",
        sentence="JPEGs come from a disk that gives 3 MB/s; four workers wait for it.",
        job="images",
        data="images",
        args="--workers 4 --batch 8 --sample-ms 6",
        fault=ReadRate(bytes_per_s=3 * MB),
        cold=True,
        truth=(("read", "bandwidth"),),
    ),
    Case(
        name="read-bandwidth-tars",
        sentence="Two workers stream tar shards from a disk that gives 4 MB/s.",
        job="tars",
        data="tars",
        args="--workers 2 --batch 8 --sample-ms 5",
        fault=ReadRate(bytes_per_s=4 * MB),
        cold=True,
        truth=(("read", "bandwidth"),),
    ),
    Case(
        name="read-bandwidth-memmap",
        sentence="Page faults on a memory-mapped token file wait for a disk that gives 1 MB/s.",
        job="tokens",
        data="tokens",
        args="--workers 4 --batch 4 --length 8192 --sparse --sample-ms 6",
        fault=ReadRate(bytes_per_s=1 * MB),
        cold=True,
        truth=(("read", "bandwidth"),),
    ),
    Case(
        name="read-iops-files",
        sentence="Small files on a disk that serves 120 requests per second, eight workers.",
        job="files",
        data="files",
        args="--workers 8 --batch 8 --per-sample 2 --sample-ms 6",
        fault=ReadRate(requests_per_s=120),
        cold=True,
        truth=(("read", "bandwidth"),),
    ),
    Case(
        name="read-latency-images",
        sentence="JPEGs on a mount where every read takes 8 ms longer; two workers.",
        job="images",
        data="images",
        args="--workers 2 --batch 8 --sample-ms 5",
        fault=SlowMount(read_ms=8),
        truth=(("read", "latency"),),
    ),
    Case(
        name="read-latency-records",
        sentence="Random reads in one packed file on a mount with 15 ms latency; four workers.",
        job="audio",
        data="packed",
        args="--workers 4 --batch 8 --sample-ms 4",
        fault=SlowMount(read_ms=15),
        truth=(("read", "latency"),),
    ),
    Case(
        name="read-latency-no-root",
        sentence="Every read() of a small file takes 10 ms longer, by a preloaded library.",
        job="files",
        data="files",
        args="--workers 2 --batch 4 --per-sample 2 --sample-ms 8",
        fault=SlowReads(delay_ms=10),
        truth=(("read", "latency"),),
    ),
    Case(
        name="read-latency-metadata",
        sentence="Small files on a mount where open takes 10 ms and stat 3 ms; four workers.",
        job="files",
        data="files",
        args="--workers 4 --batch 8 --per-sample 2 --sample-ms 4",
        fault=SlowMount(open_ms=10, getattr_ms=3),
        truth=(("read", "latency"),),
    ),
    Case(
        name="read-contention-neighbour",
        sentence="A neighbour keeps 32 reads in flight on a disk of 400 requests per second.",
        job="files",
        data="files",
        args="--workers 4 --batch 4 --per-sample 2 --sample-ms 6",
        fault=Neighbour(ReadRate(requests_per_s=400), in_flight=32, file=NEIGHBOURS_FILE),
        ambient=ReadRate(requests_per_s=400),
        cold=True,
        truth=(("read", "contention"),),
    ),
    Case(
        name="read-contention-stream",
        sentence="A neighbour streams from the disk that the JPEGs are on, 24 MB/s for both.",
        job="images",
        data="images",
        args="--workers 2 --batch 4 --sample-ms 5",
        fault=Neighbour(
            ReadRate(bytes_per_s=24 * MB), in_flight=2, file=NEIGHBOURS_FILE, request_bytes=1 << 16
        ),
        ambient=ReadRate(bytes_per_s=24 * MB),
        cold=True,
        truth=(("read", "contention"),),
    ),
    Case(
        name="read-contention-metadata",
        sentence="Two dozen others ask the same metadata server, which serves one at a time.",
        job="files",
        data="files",
        args="--workers 4 --batch 4 --per-sample 1 --sample-ms 5",
        fault=SlowMount(open_ms=0.4, getattr_ms=0.4, serial=True, storm_clients=24),
        ambient=SlowMount(open_ms=0.4, getattr_ms=0.4, serial=True),
        truth=(("read", "contention"),),
    ),
    Case(
        name="read-memory-records",
        sentence="160 MB of records, re-read in every epoch, in a memory limit of 330 MB.",
        job="audio",
        data="packed",
        args="--workers 4 --batch 16 --limit 600 --sample-ms 1.2",
        fault=Both(ReadRate(bytes_per_s=60 * MB), MemoryLimit(330 * MB)),
        ambient=ReadRate(bytes_per_s=60 * MB),
        cold=True,
        truth=(("read", "memory"),),
    ),
    Case(
        name="read-memory-memmap",
        sentence="100 MB of a memory-mapped file, re-read in every epoch; half of that fits.",
        job="tokens",
        data="tokens",
        args="--workers 2 --batch 16 --length 8192 --count 6000 --scan --sparse --sample-ms 0.6",
        fault=Both(ReadRate(requests_per_s=800), MemoryLimit(300 * MB)),
        ambient=ReadRate(requests_per_s=800),
        cold=True,
        truth=(("read", "memory"),),
    ),
]

PREPARE = [
    Case(
        name="decode-parallelism-images",
        sentence="One worker decodes JPEGs while a core is free.",
        job="images",
        data="images",
        args="--workers 1 --batch 16 --sample-ms 0.6",
        truth=(("decode", "parallelism"),),
        without="--workers 2",
    ),
    Case(
        name="decode-parallelism-arrays",
        sentence="One worker decompresses zstd frames while a core is free.",
        job="arrays",
        data="zstd",
        args="--workers 1 --batch 8 --sample-ms 1.8",
        truth=(("decode", "parallelism"),),
        without="--workers 2",
    ),
    Case(
        name="decode-parallelism-no-workers",
        sentence="The training loop itself decodes JPEGs from tar shards: no workers at all.",
        job="tars",
        data="tars",
        args="--workers 0 --batch 16 --sample-ms 0.8",
        truth=(("decode", "parallelism"),),
        without="--workers 2",
    ),
    Case(
        name="transform-parallelism-audio",
        sentence="One worker computes spectrograms while a core is free.",
        job="audio",
        data="packed",
        args="--workers 1 --batch 4 --windows 512 --sample-ms 4",
        truth=(("transform", "parallelism"),),
        without="--workers 2",
    ),
    Case(
        name="transform-parallelism-text",
        sentence="The training loop itself hashes n-grams in Python: no workers at all.",
        job="text",
        data="lines",
        args="--workers 0 --batch 8 --ngrams 4 --sample-ms 1.5",
        truth=(("transform", "parallelism"),),
        without="--workers 2",
    ),
    Case(
        name="decode-cores-quota",
        sentence="Four workers decode JPEGs under a quota of 0.6 cores.",
        job="images",
        data="images",
        args="--workers 4 --batch 8 --sample-ms 1",
        fault=Quota(cores=0.6),
        truth=(("decode", "cores"),),
    ),
    Case(
        name="transform-cores-affinity",
        sentence="Four workers and the trainer share one core of two.",
        job="audio",
        data="packed",
        args="--workers 4 --batch 4 --windows 512 --sample-ms 4",
        fault=OneCore(),
        truth=(("transform", "cores"),),
    ),
    Case(
        name="decode-cores-hogs",
        sentence="Other processes hold the cores; the job has a third of their shares.",
        job="arrays",
        data="zstd",
        args="--workers 4 --batch 8 --sample-ms 2.5",
        fault=Hogs(job_shares=700, hog_shares=2048),
        truth=(("decode", "cores"),),
    ),
    Case(
        name="transform-code-text",
        sentence="Workers fill all cores with one slow loop in pure Python.",
        job="text",
        data="lines",
        args="--workers 4 --batch 8 --ngrams 6 --sample-ms 1",
        truth=(("transform", "code"),),
        without="--ngrams 1",
    ),
    Case(
        name="transform-code-stream",
        sentence="Two workers stream gzip shards and fill both cores with a loop in pure Python.",
        job="text",
        data="gzip",
        args="--stream --workers 2 --batch 16 --ngrams 5 --sample-ms 0.8",
        truth=(("transform", "code"),),
        without="--ngrams 1",
    ),
]

FETCH = [
    Case(
        name="fetch-parallelism-sleep",
        sentence="A client sleeps 8 ms for each sample, to keep to a rate; one worker.",
        job="service",
        args="--way sleep --workers 1 --batch 8 --sample-ms 2",
        without="--workers 8",
        truth=(("fetch", "parallelism"),),
    ),
    Case(
        name="fetch-parallelism-service",
        sentence="A service answers each request after 12 ms, however many there are; two workers.",
        job="service",
        args="--way together --answer-ms 12 --workers 2 --batch 8 --sample-ms 2",
        without="--workers 12",
        truth=(("fetch", "parallelism"),),
    ),
    Case(
        name="fetch-latency-service",
        sentence="A service answers one request after the other, 6 ms each; four workers.",
        job="service",
        args="--way serial --answer-ms 6 --workers 4 --batch 8 --sample-ms 2",
        without="--way together",
        truth=(("fetch", "latency"),),
    ),
]

HANDOFF = [
    Case(
        name="handoff-code-objects",
        sentence="Batches are lists of nested Python objects; pickling them is the work.",
        job="objects",
        args="--workers 2 --batch 16 --boxes 600 --sample-ms 0.6",
        truth=(("handoff", "code"),),
        without="--boxes 5",
    ),
    Case(
        name="collate-code-python",
        sentence="Four workers fill all cores with a collate function in pure Python.",
        job="objects",
        args="--collate slow --workers 4 --batch 16 --boxes 4000 --sample-ms 1",
        truth=(("collate", "code"),),
        without="--boxes 50",
    ),
]

COMPUTE = [
    Case(
        name="launch-tiny-batch",
        sentence="A real model of many tiny operations, two samples at a time.",
        job="small_model",
        args="--model chain --workers 0 --batch 2 --count 301",
        truth=(("compute", "launch"),),
    ),
    Case(
        name="launch-fixed-cost",
        sentence="A step costs 40 ms whatever the batch size, and the batch is small.",
        job="tokens",
        data="tokens",
        args="--workers 2 --persistent --batch 4 --count 102 --fixed-ms 40 --sample-ms 0.2",
        truth=(("compute", "launch"),),
    ),
]

PAUSE = [
    Case(
        name="pause-checkpoint",
        sentence="A checkpoint of 160 MB is saved every five steps.",
        job="pauses",
        data="tokens",
        args="--workers 2 --batch 16 --sample-ms 2 --pause checkpoint --every 5",
        truth=(("pause", "code"),),
        without="--pause none",
    ),
    Case(
        name="pause-validation",
        sentence="Every five steps a validation loop computes a ranking metric in Python.",
        job="pauses",
        data="tokens",
        args="--workers 2 --batch 16 --sample-ms 2 --pause validation --every 5",
        truth=(("pause", "code"),),
        without="--pause none",
    ),
    Case(
        name="pause-logging",
        sentence="Weights are written as JSON and fsynced after every step.",
        job="pauses",
        data="tokens",
        args="--workers 1 --batch 16 --sample-ms 2 --pause logging",
        truth=(("pause", "code"),),
        without="--pause none",
    ),
    Case(
        name="pause-garbage",
        sentence="Garbage is collected by hand at every other step, over 300,000 live objects.",
        job="pauses",
        data="tokens",
        args="--workers 0 --batch 16 --sample-ms 3 --pause garbage --every 2",
        truth=(("pause", "code"),),
        without="--pause none",
    ),
    Case(
        name="pause-worker-restart",
        sentence="Short epochs whose workers are started anew and rebuild their tables each time.",
        job="images",
        data="images",
        args="--workers 2 --batch 8 --limit 80 --sample-ms 6 --init-tables 3000",
        truth=(("pause", "code"),),
        without="--persistent",
    ),
]

CONTROLS = [
    Case(
        name="healthy-compute-bound",
        sentence="JPEGs for a slow device: the loader is far ahead.",
        job="images",
        data="images",
        args="--workers 2 --batch 16 --sample-ms 6",
        truth=(HEALTHY,),
    ),
    Case(
        name="healthy-conv-on-cpu",
        sentence="A real convolutional net on the CPU over data in memory.",
        job="small_model",
        args="--model conv --workers 0 --batch 32",
        truth=(HEALTHY,),
    ),
    Case(
        name="healthy-many-workers",
        sentence="Eight workers over small files keep the device fed.",
        job="files",
        data="files",
        args="--workers 8 --batch 32 --per-sample 2 --sample-ms 1.5",
        truth=(HEALTHY,),
    ),
    Case(
        name="healthy-bursty",
        sentence="Some documents are 24 times as long, but batches are prefetched.",
        job="text",
        data="lines",
        args="--workers 2 --prefetch 6 --batch 16 --ngrams 2 --long-every 160 --sample-ms 3",
        truth=(HEALTHY,),
    ),
    Case(
        name="healthy-short-epochs",
        sentence="Twenty batches an epoch, workers kept between epochs.",
        job="tokens",
        data="tokens",
        args="--workers 2 --persistent --batch 16 --count 320 --sample-ms 3",
        truth=(HEALTHY,),
    ),
    Case(
        name="healthy-slow-first-batch",
        sentence="The first batch takes a second, all others are there in time.",
        job="warmup",
        data="tokens",
        args="--workers 2 --batch 16 --sample-ms 3 --seconds 16",
        truth=(HEALTHY,),
    ),
    Case(
        name="healthy-hidden-wait",
        sentence="No workers, 10 ms to load a batch, but the device's queue hides it.",
        job="images",
        data="images",
        args="--workers 0 --batch 8 --sample-ms 5",
        truth=(HEALTHY,),
    ),
]

CASES: list[Case] = [*READ, *FETCH, *PREPARE, *HANDOFF, *COMPUTE, *PAUSE, *CONTROLS, *RANK_CASES]
