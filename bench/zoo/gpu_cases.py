"""Cases of the kind that only a GPU shows, on the emulated device of bench/emu.

`jobs/gpu.py` for one process, `jobs/ranks.py` with collectives that are queued, as NCCL's are. The
device's time is chosen as in `cases.py`; a kernel of 250 us takes a host some 10 us to launch.
"""

from bench.zoo.case import HEALTHY, Case, Culprit, Pair
from bench.zoo.rank_cases import IMBALANCE

LAUNCH: Pair = ("compute", "launch")
STARVED: Pair = ("transform", "parallelism")
SLOW_LOADER = "--workers 1 --prepare-us 3200 --kernel-us 100"
"""35 ms for a batch of 32, against 15 ms of the device."""

LAUNCHES = [
    Case(
        name="gpu-launch-small",
        sentence="Some hundred tiny kernels a step, for four samples: the device waits for each.",
        job="gpu",
        args="--layers 100 --kernel-us 3 --batch 4",
        truth=(LAUNCH,),
        without="--kernel-us 60",
    ),
    Case(
        name="gpu-launch-large",
        sentence="The same with 256 samples: the batch is not what makes kernels short.",
        job="gpu",
        args="--layers 100 --kernel-us 3 --batch 256 --prepare-us 1",
        truth=(LAUNCH,),
        without="--kernel-us 60",
    ),
    Case(
        name="gpu-launch-spinning",
        sentence="Tiny kernels, and a host whose waits keep its core busy.",
        job="gpu",
        args="--layers 100 --kernel-us 3 --batch 16 --read-every 1",
        env={"EMU_SPIN": "1"},
        truth=(LAUNCH,),
        without="--kernel-us 60",
    ),
    Case(
        name="gpu-launch-amp",
        sentence="Mixed precision doubles the kernels; the scaler reads a value in every step.",
        job="gpu",
        args="--layers 60 --kernel-us 3 --batch 16 --amp",
        truth=(LAUNCH,),
        without="--kernel-us 60",
    ),
    Case(
        name="gpu-host-sync",
        sentence="Every layer's activations are checked on the host: the queue is always empty.",
        job="gpu",
        args="--layers 24 --checks 24 --kernel-us 20 --batch 16",
        truth=(LAUNCH,),
        without="--checks 0 --kernel-us 60",
    ),
]

STARVING = [
    Case(
        name=f"gpu-starved-accumulate-{batches}",
        sentence=f"One worker is too slow; the optimizer steps after {batches} batches.",
        job="gpu",
        args=f"{SLOW_LOADER} --accumulate {batches}",
        truth=(STARVED,),
        without="--prepare-us 10",
    )
    for batches in (1, 4, 16)
] + [
    Case(
        name="gpu-starved-two-optimizers",
        sentence="One worker is too slow; two optimizers share the weights.",
        job="gpu",
        args=f"{SLOW_LOADER} --optimizers 2",
        truth=(STARVED,),
        without="--prepare-us 10",
    ),
    Case(
        name="gpu-starved-amp",
        sentence="One worker is too slow for a job with mixed precision and scaled gradients.",
        job="gpu",
        args="--workers 1 --prepare-us 4000 --kernel-us 60 --amp",
        truth=(STARVED,),
        without="--prepare-us 10",
    ),
    Case(
        name="gpu-starved-graph",
        sentence="Whole steps are replayed as graphs, and one worker is too slow for them.",
        job="gpu",
        args=f"{SLOW_LOADER} --graph",
        truth=(STARVED,),
        without="--prepare-us 10",
    ),
    Case(
        name="gpu-starved-device-3",
        sentence="Weights on emu:3 in a script without set_device; one worker is too slow.",
        job="gpu",
        args=f"{SLOW_LOADER} --device emu:3",
        truth=(STARVED,),
        without="--prepare-us 10",
    ),
    Case(
        name="gpu-starved-side-stream",
        sentence="Batches come over a side stream from pinned memory, and one worker is too slow.",
        job="gpu",
        args=f"{SLOW_LOADER} --pin --copy side-stream",
        truth=(STARVED,),
        without="--prepare-us 10",
    ),
]

COPYING = [
    Case(
        name="gpu-copy-pageable",
        sentence="6 MB a step from pageable memory at 0.3 GB/s; the host waits for each copy.",
        job="gpu",
        args="--workers 1 --batch 16 --sample-kb 400 --kernel-us 60",
        env={"EMU_COPY_GBPS": "0.3"},
        truth=(("transfer", "code"),),
        without="--sample-kb 0.1",
    ),
    Case(
        name="gpu-copy-pinned-blocking",
        sentence="The same from pinned memory, but the call still waits for the copy.",
        job="gpu",
        args="--workers 1 --batch 16 --sample-kb 400 --kernel-us 60 --pin",
        env={"EMU_COPY_GBPS": "0.3"},
        truth=(("transfer", "code"),),
        without="--sample-kb 0.1",
    ),
    Case(
        name="gpu-copy-bound",
        sentence="Pinned and asynchronous, but the copies take twice as long as the kernels.",
        job="gpu",
        args="--workers 1 --batch 16 --sample-kb 400 --kernel-us 60 --pin --copy asynchronous",
        env={"EMU_COPY_GBPS": "0.3"},
        truth=(("transfer", "bandwidth"), ("transfer", "code")),
        why_two="The link is full: fewer bytes help, and so does a stream of their own.",
        without="--sample-kb 0.1",
    ),
]

RANKS = [
    Case(
        name=f"gpu-ranks-slow-{part}",
        sentence=f"The second rank's device takes 40 ms longer in every {part} pass; nobody's host "
        "waits.",
        job="ranks",
        device="emu",
        args=f"--slow {part}",
        without="--slow none",
        ranks=2,
        truth=(IMBALANCE,),
        culprit=Culprit(1, "compute", "code", part),
    )
    for part in ("forward", "backward", "optimizer")
] + [
    Case(
        name="gpu-ranks-slow-input",
        sentence="The second rank's loader prepares batches for 90 ms, the other's is fast.",
        job="ranks",
        device="emu",
        args="--slow input --slow-ms 90 --workers 1",
        without="--slow none",
        ranks=2,
        truth=(IMBALANCE,),
        culprit=Culprit(1, "transform", "parallelism", "input"),
    ),
    Case(
        name="gpu-ranks-bandwidth",
        sentence="Two devices exchange 8 MB a step over 1 Gbit/s; their hosts queue it and go on.",
        job="ranks",
        device="emu",
        args="--gradient-mb 8 --steps 80",
        env={"EMU_EXCHANGE_GBPS": "1"},
        without="--gradient-mb 0.1",
        ranks=2,
        truth=(("sync", "bandwidth"),),
    ),
    Case(
        name="gpu-ranks-jitter",
        sentence="In every step one of the two devices is 40 ms slower, by chance.",
        job="ranks",
        device="emu",
        args="--slow forward --rotate",
        without="--slow none",
        ranks=2,
        truth=(("sync", "jitter"),),
    ),
    Case(
        name="healthy-gpu-ranks",
        sentence="Two devices that exchange their gradients in time.",
        job="ranks",
        device="emu",
        args="--forward-ms 30 --backward-ms 60 --steps 100",
        ranks=2,
        truth=(HEALTHY,),
    ),
]

CONTROLS = [
    Case(
        name="healthy-gpu",
        sentence="Long kernels, a loader that is ahead, copies that wait for the device.",
        job="gpu",
        args="",
        truth=(HEALTHY,),
    ),
    Case(
        name="healthy-gpu-reads",
        sentence="A loss that is read in every step, and a device that is busy meanwhile.",
        job="gpu",
        args="--read-every 1 --kernel-us 400",
        truth=(HEALTHY,),
    ),
    Case(
        name="healthy-gpu-spinning",
        sentence="The same with a host whose waits keep its core busy.",
        job="gpu",
        args="--read-every 1 --kernel-us 400",
        env={"EMU_SPIN": "1"},
        truth=(HEALTHY,),
    ),
    Case(
        name="healthy-gpu-amp",
        sentence="Mixed precision with scaled gradients on a busy device.",
        job="gpu",
        args="--amp --kernel-us 200",
        truth=(HEALTHY,),
    ),
    Case(
        name="healthy-gpu-accumulate",
        sentence="Sixteen batches a step, and a loader that is ahead.",
        job="gpu",
        args="--accumulate 16",
        truth=(HEALTHY,),
    ),
    Case(
        name="healthy-gpu-side-stream",
        sentence="2 MB a step from pinned memory over a side stream, hidden under long kernels.",
        job="gpu",
        args="--batch 16 --sample-kb 128 --pin --copy side-stream",
        truth=(HEALTHY,),
    ),
    Case(
        name="healthy-gpu-graph",
        sentence="Whole steps are replayed as graphs; the device is busy throughout.",
        job="gpu",
        args="--graph",
        truth=(HEALTHY,),
    ),
]

GPU_CASES: list[Case] = [*LAUNCHES, *STARVING, *COPYING, *RANKS, *CONTROLS]
