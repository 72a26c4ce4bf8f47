"""Cases of several ranks: the network between them, a slow rank, ranks that take turns, controls.

Devices take 45 ms a step and occupy no core, so that two or four ranks fit on two cores; a fault
adds a third to a step at least.
"""

from bench.zoo.case import HEALTHY, Case, Culprit, Pair
from bench.zoo.fault import OneRank
from bench.zoo.faults.groups import Quota, ReadRate
from bench.zoo.faults.links import Link
from bench.zoo.faults.mounts import SlowMount

IMBALANCE: Pair = ("sync", "imbalance")
MB = 1_000_000

NETWORK = [
    Case(
        name="ranks-network-bandwidth",
        sentence="Two ranks exchange 4 MB of gradients a step over 100 Mbit/s.",
        job="ranks",
        args="--steps 35 --gradient-mb 4",
        ranks=2,
        fault=Link(rate_mbit=100),
        ambient=Link(),
        truth=(("sync", "bandwidth"),),
    ),
    Case(
        name="ranks-network-bandwidth-4",
        sentence="Four ranks exchange 1 MB of gradients a step, each with a link of 100 Mbit/s.",
        job="ranks",
        args="--steps 60 --gradient-mb 1",
        ranks=4,
        fault=Link(ranks=4, rate_mbit=100),
        ambient=Link(ranks=4),
        truth=(("sync", "bandwidth"),),
    ),
    Case(
        name="ranks-network-latency",
        sentence="Two ranks are 10 ms apart, one way; their gradients are small.",
        job="ranks",
        args="--steps 110 --gradient-mb 0.01 --batchnorm",
        ranks=2,
        fault=Link(delay_ms=10),
        ambient=Link(),
        truth=(("sync", "latency"),),
    ),
    Case(
        name="ranks-network-latency-fsdp",
        sentence="Two ranks are 8 ms apart, and FSDP gathers and scatters in every step.",
        job="ranks",
        args="--steps 90 --gradient-mb 0.05 --wrap fsdp",
        ranks=2,
        fault=Link(delay_ms=8),
        ambient=Link(),
        truth=(("sync", "latency"),),
    ),
    Case(
        name="ranks-network-jitter",
        sentence="In two windows of 50 ms out of five, packets come up to 120 ms late.",
        job="ranks",
        args="--steps 120",
        ranks=2,
        fault=Link(delay_ms=0.2, extra_ms=120, extra_share=0.4),
        ambient=Link(),
        truth=(("sync", "jitter"),),
    ),
    Case(
        name="ranks-network-loss",
        sentence="Two packets out of a hundred are lost on the way between two ranks.",
        job="ranks",
        args="--steps 120",
        ranks=2,
        fault=Link(delay_ms=0.2, loss_share=0.02),
        ambient=Link(),
        truth=(("sync", "jitter"),),
    ),
]

STRAGGLERS = [
    Case(
        name="ranks-slow-forward",
        sentence="The second rank's device takes 40 ms longer in every forward pass.",
        job="ranks",
        args="--slow forward",
        without="--slow none",
        ranks=2,
        truth=(IMBALANCE,),
        culprit=Culprit(1, "compute", "code", "forward"),
    ),
    Case(
        name="ranks-slow-forward-batchnorm",
        sentence="The first rank's forward is slow, and the others need its buffers before theirs.",
        job="ranks",
        args="--slow forward --slow-rank 0 --batchnorm",
        without="--slow none",
        ranks=2,
        truth=(IMBALANCE,),
        culprit=Culprit(0, "compute", "code", "forward"),
    ),
    Case(
        name="ranks-slow-backward",
        sentence="The second rank's device takes 40 ms longer in every backward pass.",
        job="ranks",
        args="--slow backward --batchnorm",
        without="--slow none",
        ranks=2,
        truth=(IMBALANCE,),
        culprit=Culprit(1, "compute", "code", "backward"),
    ),
    Case(
        name="ranks-slow-optimizer",
        sentence="The second rank's optimizer is slow; the sender of buffers does not wait for it.",
        job="ranks",
        args="--slow optimizer --batchnorm",
        without="--slow none",
        ranks=2,
        truth=(IMBALANCE,),
        culprit=Culprit(1, "compute", "code", "optimizer"),
    ),
    Case(
        name="ranks-slow-logging",
        sentence="The first rank writes its log for 40 ms after every step.",
        job="ranks",
        args="--slow logging --slow-rank 0",
        without="--slow none",
        ranks=2,
        truth=(IMBALANCE,),
        culprit=Culprit(0, "pause", "code", "loop"),
    ),
    Case(
        name="ranks-slow-checkpoint",
        sentence="The first rank saves 400 MB every eight steps while the others wait.",
        job="ranks",
        args="--steps 100 --save-every 8 --save-mb 400",
        without="--save-every 0",
        ranks=2,
        truth=(IMBALANCE,),
        culprit=Culprit(0, "pause", "code", "checkpoint"),
    ),
    Case(
        name="ranks-slow-input-latency",
        sentence="The second rank's small files are on a mount where a read takes 10 ms longer.",
        job="ranks",
        data="files",
        args="--workers 1",
        ranks=2,
        fault=OneRank(SlowMount(read_ms=10), rank=1),
        ambient=OneRank(SlowMount(), rank=1),
        truth=(IMBALANCE,),
        culprit=Culprit(1, "read", "latency", "input"),
    ),
    Case(
        name="ranks-slow-input-bandwidth",
        sentence="The first rank's disk serves 100 requests per second, the other's is fast.",
        job="ranks",
        data="files",
        args="--workers 4 --steps 100",
        ranks=2,
        fault=OneRank(ReadRate(requests_per_s=100), rank=0),
        cold=True,
        truth=(IMBALANCE,),
        culprit=Culprit(0, "read", "bandwidth", "input"),
    ),
    Case(
        name="ranks-slow-quota",
        sentence="Ranks compute on the host, and the second has a quota of 0.25 cores.",
        job="ranks",
        args="--forward-ms 5 --backward-ms 10 --width 1024 --depth 3 --batch 16 --steps 100",
        ranks=2,
        fault=OneRank(Quota(cores=0.25), rank=1),
        truth=(IMBALANCE,),
        culprit=Culprit(1, "compute", "cores", "backward"),
    ),
    Case(
        name="ranks-slow-of-four",
        sentence="The third of four ranks takes 40 ms longer in every backward pass.",
        job="ranks",
        args="--slow backward --slow-rank 2 --steps 130",
        without="--slow none",
        ranks=4,
        truth=(IMBALANCE,),
        culprit=Culprit(2, "compute", "code", "backward"),
    ),
]

TURNS = [
    Case(
        name="ranks-jitter",
        sentence="In every step one of the two ranks is 40 ms slower, by chance.",
        job="ranks",
        args="--slow forward --rotate",
        without="--slow none",
        ranks=2,
        truth=(("sync", "jitter"),),
    ),
    Case(
        name="ranks-jitter-4",
        sentence="In every step one of four ranks is 40 ms slower, by chance.",
        job="ranks",
        args="--slow backward --rotate --steps 130",
        without="--slow none",
        ranks=4,
        truth=(("sync", "jitter"),),
    ),
    Case(
        name="ranks-input-latency",
        sentence="All ranks read small files from a mount where a read takes 8 ms longer.",
        job="ranks",
        data="files",
        args="--workers 1 --steps 120",
        ranks=2,
        fault=SlowMount(read_ms=8),
        truth=(("read", "latency"),),
    ),
]

CONTROLS = [
    Case(
        name="healthy-ranks-batchnorm",
        sentence="Two ranks with BatchNorm, whose buffers are sent before every forward pass.",
        job="ranks",
        args="--batchnorm",
        ranks=2,
        truth=(HEALTHY,),
    ),
    Case(
        name="healthy-ranks-4",
        sentence="Four ranks that exchange their gradients in time.",
        job="ranks",
        args="--forward-ms 30 --backward-ms 60 --steps 100",
        ranks=4,
        truth=(HEALTHY,),
    ),
    Case(
        name="healthy-ranks-fsdp",
        sentence="Two ranks that shard their parameters.",
        job="ranks",
        args="--wrap fsdp --forward-ms 30 --backward-ms 60 --steps 100",
        ranks=2,
        truth=(HEALTHY,),
    ),
    Case(
        name="healthy-ranks-network",
        sentence="Two ranks in network namespaces of their own, with a link that is fast enough.",
        job="ranks",
        args="--forward-ms 30 --backward-ms 60 --steps 100",
        ranks=2,
        fault=Link(),
        truth=(HEALTHY,),
    ),
]

RANK_CASES: list[Case] = [*NETWORK, *STRAGGLERS, *TURNS, *CONTROLS]
