"""The pipeline of one job as numbers: what a batch asks of workers, cores, storage and device.

All times are seconds of one batch. `flow` turns them into the time from batch to batch: operational
laws bound it from below, a closed network of workers (whatif.network) and the order in which
batches are handed over (`deliver`) give what lies in between. Where the numbers come from is
in `fitting`, what a question changes is in `changes`.

Also here: batches in order through a loader of several workers: what a slow batch costs the others.

Worker i mod W makes batch i; it starts when its last one is done and when the trainer has taken the
batch W x P before. The trainer takes batches in order. So one slow batch holds up those behind it,
and its worker's neighbours run dry when the queue is short. The recursion is exact; the fetch times
are drawn from a log-normal distribution with the recorded spread, the same draws every time, so
that two answers differ by what was asked and not by chance.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

from fuelline.whatif.network import Station, throughput

if TYPE_CHECKING:
    from fuelline.schema.parts import StepPart

Limit = Literal["device", "host", "workers", "cores", "memory", "storage", "service", "pauses"]

ROUNDS = 4
"""The trainer's own share of the cores follows from the rate and the other way round; it settles to
a per mille in this many rounds."""
_SETTLED = 0.02
_AS_GOOD = 0.9
"""Of the best gain: as good as the best."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One job, or one that it could be."""

    workers: int
    prefetch: int
    """Batches that a worker makes ahead; 0: it begins when one is asked for."""
    batch_samples: float
    cpu_s: float
    """On a core, in the fetch."""
    read_s: float
    """Blocked in reads with one fetch in progress and nobody else; likewise metadata."""
    metadata_s: float
    idle_s: float
    """Blocked elsewhere: locks, sleeping, a service; with one fetch in progress."""
    handoff_s: float
    take_s: float
    host_s: float
    """The trainer's own work; with the device within it, that too."""
    host_cpu_s: float
    """Of it: on a core."""
    loop_s: float
    """Of it: between the steps."""
    device_s: float
    beside: bool
    """Whether the device works while the host goes on."""
    sync_frac: float
    fetch_spread: float
    """Standard deviation over mean of a fetch."""
    cores: float
    rivals: float
    """Threads outside the job that always want a core, as the job's own waiting for one shows."""
    elasticity: float
    """How blocked time grows with fetches in progress: 0 not at all, 1 in proportion."""
    idle_elasticity: float = 0.0
    """The same of what is blocked elsewhere: 1 for a service that serves one at a time."""
    storage_rivals: float = 0.0
    """Requests outside the job that are always in flight beside its own. Each request gets an equal
    share of a storage that is full: more workers take some of what the others have."""
    pauses: dict[StepPart, float] = field(default_factory=dict, hash=False)
    pause_felt: float = 1.0
    """How much of a pause the device does not hide."""
    epoch_batches: float = math.inf
    persistent: bool = False
    start_s: float = 0.0
    ranks: int = 1
    """On this host, with these cores and this storage between them."""
    slack: float = 1.0
    """Measured over modelled time of an input-bound batch."""
    surplus_s: float = 0.0
    """What the trainer takes beyond the model, where it is the limit."""
    storage_most: float = math.inf
    """Most requests that the storage serves at once, where its kind says so: more of them wait.
    Bytes count as requests that last as long as the bytes take."""
    memory_s: float = 0.0
    """The least that the host's memory takes for a batch, with all cores at it."""

    @property
    def storage_s(self) -> float:
        """Blocked on storage, one fetch in progress."""
        return self.read_s + self.metadata_s

    @property
    def fetch_s(self) -> float:
        """One fetch with nobody in the way."""
        return self.cpu_s + self.storage_s + self.idle_s


@dataclass(frozen=True, kw_only=True)
class Flow:
    """How a pipeline runs."""

    batch_s: float
    bounds: dict[Limit, float]
    """Least seconds of a batch by each resource alone."""
    input_s: float
    """What the loader alone would take for a batch."""
    consumer_s: float
    cores_used: float


@lru_cache(maxsize=1024)
def run(pipe: Pipeline) -> Flow:
    """The time from batch to batch; kept, because an interval asks for the same ones many times."""
    bounds = find_bounds(pipe)
    consumer_s = consume(pipe)
    input_s, flowing_s = _flow(pipe, consumer_s, bounds) if pipe.workers else (0.0, consumer_s)
    flowing_s = max(flowing_s, *(bounds[name] for name in bounds if name != "pauses"))
    paused_s = pipe.pause_felt * sum(pipe.pauses.values())
    batch_s = flowing_s + paused_s
    return Flow(
        batch_s=batch_s,
        bounds=bounds,
        input_s=input_s,
        consumer_s=consumer_s,
        cores_used=min(pipe.cores, pipe.ranks * _core_seconds(pipe) / batch_s),
    )


def _flow(pipe: Pipeline, consumer_s: float, bounds: dict[Limit, float]) -> tuple[float, float]:
    """What the loader would take for a batch if it never had to wait, and what it does take.

    Batches are handed over in order, so that workers wait for each other and for room; a worker
    that waits wants no core. How many are at work, and so how long a round takes, follows from the
    rate and the other way round.
    """
    rate = 1 / max(consumer_s, bounds["workers"], 1e-12)
    if not pipe.prefetch:
        input_s = supply(pipe, 1 / (consumer_s + bounds["workers"]))
        return input_s, consumer_s + input_s
    known: dict[int, float] = {}

    def round_of(count: int) -> float:
        if count not in known:
            known[count] = count * supply(replace(pipe, workers=count), rate)
        return known[count]

    active, flowing_s = float(pipe.workers), consumer_s
    for _ in range(ROUNDS):
        below = min(pipe.workers, max(1, int(active)))
        above = min(pipe.workers, below + 1)
        round_s = round_of(below) + (active - below) * (round_of(above) - round_of(below))
        flowing_s = deliver(
            round_s, consumer_s, pipe.workers, pipe.prefetch, spread=pipe.fetch_spread
        )
        at_work = min(float(pipe.workers), max(1.0, round_s / flowing_s))
        if abs(at_work - active) < _SETTLED * active:
            break
        active = (active + at_work) / 2
    return round_of(pipe.workers) / pipe.workers, flowing_s


def find_bounds(pipe: Pipeline) -> dict[Limit, float]:
    """Operational laws: no resource serves a batch in less than its demand over its servers."""
    total = max(1, pipe.workers) * pipe.ranks
    storage_s = pipe.storage_s * pipe.ranks / storage_speed(pipe, total)
    bounds: dict[Limit, float] = {
        "device": pipe.device_s,
        "host": pipe.host_s + (pipe.take_s if pipe.workers else 0.0),
        "workers": (pipe.fetch_s + pipe.handoff_s) / pipe.workers
        if pipe.workers
        else pipe.fetch_s + pipe.host_s,
        "cores": pipe.ranks * _core_seconds(pipe) / pipe.cores,
        "memory": pipe.memory_s * pipe.ranks,
        "storage": storage_s if pipe.elasticity > 0 or math.isfinite(pipe.storage_most) else 0.0,
        "service": pipe.idle_s * pipe.ranks / service_speed(pipe, total)
        if pipe.idle_elasticity > 0
        else 0.0,
        "pauses": pipe.pause_felt * sum(pipe.pauses.values()),
    }
    return bounds


def consume(pipe: Pipeline) -> float:
    """What the trainer and the device take for a batch that is there."""
    own_s = pipe.host_s + (pipe.take_s if pipe.workers else _inline(pipe))
    if not pipe.beside:
        return own_s + pipe.surplus_s
    taking_s = pipe.take_s if pipe.workers else _inline(pipe)
    free_s = max(pipe.device_s, own_s)
    # After a wait for the device nothing is queued: taking the next batch is not hidden then.
    stopped_s = max(pipe.device_s, pipe.host_s) + taking_s
    return (1 - pipe.sync_frac) * free_s + pipe.sync_frac * stopped_s + pipe.surplus_s


def supply(pipe: Pipeline, rate: float) -> float:
    """Seconds a batch that the workers alone would need, at this rate of the trainer's own work."""
    trainer_load = min(1.0, rate * (pipe.host_cpu_s + pipe.take_s))
    produced = 0.0
    for _ in range(ROUNDS):
        stations: tuple[Station, ...] = (
            Station(pipe.cpu_s + pipe.handoff_s, partial(_core_speed, pipe, trainer_load)),
            Station(pipe.storage_s, partial(storage_speed, pipe)),
        )
        delay_s = pipe.idle_s
        if pipe.idle_elasticity > 0:
            delay_s = 0.0
            stations += (Station(pipe.idle_s, partial(service_speed, pipe)),)
        produced = throughput(pipe.workers * pipe.ranks, delay_s, stations) / pipe.ranks
        trainer_load = min(1.0, min(rate, produced) * (pipe.host_cpu_s + pipe.take_s))
    return pipe.slack / produced


def storage_speed(pipe: Pipeline, count: float) -> float:
    """What `count` requests of the job get, where one alone with nobody else gets 1."""
    if not count:
        return 0.0
    speed = count * math.pow(count + pipe.storage_rivals, -pipe.elasticity)
    return min(speed, max(1.0, pipe.storage_most))


def service_speed(pipe: Pipeline, count: float) -> float:
    """What `count` fetches get that wait for something else than storage, where one gets 1."""
    return math.pow(count, 1 - pipe.idle_elasticity) if count else 0.0


def is_saturated(pipe: Pipeline) -> bool:
    """Whether all the requests that can be in flight are more than the storage serves at once."""
    return max(1, pipe.workers) * pipe.ranks >= pipe.storage_most


def _core_speed(pipe: Pipeline, trainer_load: float, count: float) -> float:
    """Cores that `count` running workers get, the trainer and others wanting some as well."""
    wanting = count + pipe.rivals + trainer_load * pipe.ranks
    return count * min(1.0, pipe.cores / wanting)


def _inline(pipe: Pipeline) -> float:
    """Fetching in the training process: alone with its rivals."""
    crowd = max(1.0, (1 + pipe.rivals) * pipe.ranks / pipe.cores)
    storage_s = pipe.storage_s / storage_speed(pipe, 1)
    return pipe.slack * (pipe.cpu_s * crowd + storage_s + pipe.idle_s)


def _core_seconds(pipe: Pipeline) -> float:
    """Core time of one batch, all processes of one rank."""
    handing_s = pipe.handoff_s + pipe.take_s if pipe.workers else 0.0
    return pipe.cpu_s + handing_s + pipe.host_cpu_s


def find_limit(pipe: Pipeline) -> Limit:
    """The resource that would help most if there were twice as much of it.

    Where two are about as good, the one further down the line is named: twice as many workers hide
    a slow storage, they do not fix it.
    """
    now_s = run(pipe).batch_s
    gains = {name: now_s / run(twice).batch_s for name, twice in _doubled(pipe).items()}
    best = max(gains.values())
    return next(name for name, gain in gains.items() if gain - 1 >= _AS_GOOD * (best - 1))


def _doubled(pipe: Pipeline) -> dict[Limit, Pipeline]:
    within_s = 0.0 if pipe.beside else pipe.device_s / 2
    return {
        "pauses": replace(pipe, pauses={part: s / 2 for part, s in pipe.pauses.items()}),
        "device": replace(pipe, device_s=pipe.device_s / 2, host_s=pipe.host_s - within_s),
        "host": replace(pipe, host_s=(pipe.host_s + 2 * within_s) / 2, take_s=pipe.take_s / 2),
        "storage": replace(pipe, read_s=pipe.read_s / 2, metadata_s=pipe.metadata_s / 2),
        **({"service": replace(pipe, idle_s=pipe.idle_s / 2)} if pipe.idle_elasticity else {}),
        **({"memory": replace(pipe, memory_s=pipe.memory_s / 2)} if pipe.memory_s else {}),
        "cores": replace(pipe, cores=2 * pipe.cores),
        "workers": replace(pipe, workers=2 * max(1, pipe.workers)),
    }


BATCHES = 400
_SETTLED_BATCHES = 80
_FAR = 0.3
"""A loader that could deliver more than three times as fast hardly ever makes anyone wait."""
_DISORDER = 4
"""Seed of the fixed disorder."""


def deliver(
    round_s: float, consumer_s: float, workers: int, prefetch: int, *, spread: float
) -> float:
    """Mean time from batch to batch, where a worker's round and the trainer's take this long."""
    if workers * prefetch <= 0:
        return consumer_s
    room = workers * prefetch
    if round_s * (1 + 2 * spread) < _FAR * consumer_s * workers:
        return consumer_s
    fetches = _draws(round(spread, 3))
    done, taken = [0.0] * BATCHES, [0.0] * BATCHES
    free = 0.0
    for number in range(BATCHES):
        start = done[number - workers] if number >= workers else 0.0
        if number >= room:
            start = max(start, taken[number - room])
        done[number] = start + round_s * fetches[number]
        taken[number] = max(done[number], free)
        free = taken[number] + consumer_s
    drawn = sum(fetches[_SETTLED_BATCHES:]) / (BATCHES - _SETTLED_BATCHES)
    mean_s = (taken[-1] - taken[_SETTLED_BATCHES - 1]) / (BATCHES - _SETTLED_BATCHES)
    # Draws after the start have their own mean; where they decide, it is taken out.
    # With hundreds of workers the batches end before the first round does: the law holds anyway.
    return max(mean_s / drawn if mean_s > 1.01 * consumer_s else mean_s, round_s / workers)


@lru_cache(maxsize=64)
def _draws(spread: float) -> tuple[float, ...]:
    """Fetch times in units of their mean: every quantile once, in a fixed disorder."""
    sigma = math.sqrt(math.log(1 + spread**2))
    normal = NormalDist()
    quantiles = [(number + 0.5) / BATCHES for number in range(BATCHES)]
    random.Random(_DISORDER).shuffle(quantiles)
    raw = [math.exp(sigma * normal.inv_cdf(quantile)) for quantile in quantiles]
    mean = sum(raw) / BATCHES
    return tuple(value / mean for value in raw)
