"""Facts of one recording in, the Pipeline that explains them out; Missing where the evidence ends.

Three numbers are not measured but solved for, so that the model reproduces what was recorded: the
rivals for the cores (from the run-queue delay of fetches), how much of a pause the device hides,
and the small remainder of time that nothing explains (`slack`, `surplus_s`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fuelline.schema.readings import Missing, Reading, Signal, at_least, value_of
from fuelline.schema.student import DEVIATIONS
from fuelline.whatif.model import Pipeline, consume, run
from fuelline.whatif.network import MOST_CUSTOMERS
from fuelline.whatif.pipelines import TF_DATA, find_unlike, is_on_demand

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.schema.diagnosis.facts import Facts

DEFAULT_PREFETCH = 2
"""torch.utils.data.DataLoader, prefetch_factor with workers."""
HANDOFF_S = 0.5e-3
TAKE_S = 1.0e-3
"""A batch of a few tensors through shared memory, worker's and trainer's side: the zoo's jobs on
two shared cores take 0.4 to 0.8 ms and 0.9 to 1.5 ms. Used where no worker was recorded."""
START_S = 0.04
"""To start one more worker and to end it again: 37 ms each for 16 workers and 49 ms for 32 on two
cores, where each forks in 12 ms and then sets itself up on a core that others want, too. The least
that is counted, because a few workers set themselves up beside each other."""
_SURE = 0.6
"""Half of the elasticity's 95 % interval, at most: what is less sure tells latency from bandwidth,
but not how much more workers would gain."""
_SATURATED = 0.5
"""As in IN102: half way between "not at all" and "in proportion"."""
_AT_LIMIT = 0.8
"""As in IN102: token buckets pulse."""
_BUSY = 0.9
_IDLE = 0.1
"""Of the host's cores: with this many idle, a thread that wants to run soon does."""
_CROWDED = 1.05
"""Time with the run queue over time without: below it is the scheduler's own doing."""
_QUEUED = 2.0
MOST_OTHERS = 0.95
"""Of what the storage gives: others may have as much; with more there is nothing to share."""
_LEAST_ERROR = 0.02
_MOST_SLACK = 1.5
"""A remainder beyond this is no remainder: the model does not fit, and that is said."""
_MOSTLY_ASLEEP = 0.8
"""Of the blocked time."""
_BEYOND_CACHES_BYTES = 64 << 20
"""What `fuelline probe` copies: what is less may stay in a cache that is quicker than it says."""
_BISECTIONS = 30
_MOST_RIVALS = 64.0
_MOST_SPREAD = 1.5
_PACED = 0.7
"""The device's share of a batch's time from which it sets the pace."""
RIVALS_ERROR = 0.5
"""Relative: of how many there are, and of how many there will be in another run."""
_FIXED_ERROR = 0.05
"""Of the fixed share, from medians of few smaller batches."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A Pipeline that explains a recording, and how sure its numbers are."""

    pipe: Pipeline
    batch_s: float
    """As recorded, from batch to batch."""
    misfit: float
    """Time of a batch by the model over the recorded one, before what was solved for, minus 1."""
    errors: dict[str, float]
    """Relative standard error of the numbers of the Pipeline, by field."""
    seen_scaling: bool
    """Whether the recording shows how the storage takes more requests at once."""
    storage_known: bool
    """Whether it is known what of a fetch waits for storage."""
    fixed_share: float | None
    """Of the device's time: what an empty batch would still cost."""
    fixed_error: float
    """Standard error of it."""
    most_growth: float
    """The most by which workers may slow each other down, as an elasticity of their CPU time: where
    it was not seen, by what they only move and by what `fuelline probe` knows of the memory."""
    facts: Facts


def fit(facts: Facts) -> Fit | Missing:
    """The Pipeline of a recording, or why there is none."""
    needed = _needed(facts)
    if isinstance(needed, Missing):
        return needed
    raw, errors = _read(facts)
    batch_s = _value(facts.demands.batch_seconds)
    pipe = _with_rivals(raw, facts)
    misfit = run(_with_pauses(pipe, batch_s)).batch_s / batch_s - 1
    fixed = _fixed_share(facts, batch_s)
    solved = _anchor(_with_pauses(pipe, batch_s), batch_s)
    if isinstance(solved, Missing):
        return solved
    return Fit(
        pipe=solved,
        batch_s=batch_s,
        misfit=misfit,
        errors=errors,
        seen_scaling=_elasticity(facts) is not None,
        storage_known=isinstance(facts.demands.read_frac, Reading),
        fixed_share=fixed[0],
        fixed_error=fixed[1],
        most_growth=_most_growth(facts),
        facts=facts,
    )


def _needed(facts: Facts) -> Missing | None:
    """The first thing that no prediction can do without."""
    demands, loader = facts.demands, facts.loader
    unlike = find_unlike(facts)
    if unlike:
        return Missing(reason=unlike)
    if loader is None or loader.num_workers is None:
        return Missing(reason="no DataLoader whose settings were seen feeds the steps")
    if loader.num_workers > MOST_CUSTOMERS:
        return Missing(reason=f"{loader.num_workers} workers are more than the model can count")
    signals = (
        demands.batch_seconds,
        demands.fetch_cpu_seconds,
        demands.fetch_blocked_seconds,
        demands.host_seconds,
        demands.device_seconds,
        facts.cores.allowed,
    )
    return next((signal for signal in signals if isinstance(signal, Missing)), None)


def _read(facts: Facts) -> tuple[Pipeline, dict[str, float]]:
    """The measured numbers as they are."""
    demands, loader = facts.demands, facts.loader
    assert loader is not None
    workers = loader.num_workers or 0
    blocked = _value(demands.fetch_blocked_seconds)
    read_frac, metadata_frac = value_of(demands.read_frac), value_of(demands.metadata_frac)
    elasticity = _elasticity(facts) or 0.0
    ranks = max(1, facts.cores.ranks)
    in_flight = count_in_flight(facts)
    others = min(MOST_OTHERS, value_of(facts.storage.others_share) or 0.0) if elasticity else 0.0
    rivals = in_flight * others / (1 - others)
    alone = (in_flight + rivals) ** -elasticity
    idle_s = blocked * max(0.0, 1 - (read_frac or 0.0) - (metadata_frac or 0.0))
    queueing = _queueing(facts)
    beside = demands.device_mode == "beside"
    epochs = demands.pause_counts.get("epoch start", 0)
    pipe = Pipeline(
        workers=workers,
        prefetch=0 if is_on_demand(loader) else loader.prefetch_factor or DEFAULT_PREFETCH,
        batch_samples=value_of(facts.compute.batch_samples) or float(loader.batch_size or 1),
        cpu_s=_value(demands.fetch_cpu_seconds),
        read_s=alone * blocked * (read_frac or 0.0),
        metadata_s=alone * blocked * (metadata_frac or 0.0),
        idle_s=idle_s * in_flight**-queueing,
        handoff_s=_or(value_of(demands.handoff_seconds), HANDOFF_S),
        take_s=_or(value_of(demands.take_seconds), TAKE_S),
        host_s=_value(demands.host_seconds),
        host_cpu_s=_value(demands.host_seconds) * _or(value_of(demands.host_cpu_frac), 1.0),
        loop_s=value_of(demands.loop_seconds) or 0.0,
        device_s=min(
            _value(demands.device_seconds),  # and no longer than there was time for a batch
            _value(demands.batch_seconds) if beside else _value(demands.host_seconds),
        ),
        beside=beside,
        sync_frac=value_of(demands.sync_frac) or 0.0,
        fetch_spread=min(_MOST_SPREAD, _value(demands.fetch_spread)),
        cores=max(0.05, _value(facts.cores.allowed)),
        rivals=0.0,
        elasticity=elasticity,
        idle_elasticity=queueing,
        storage_rivals=rivals,
        pauses={part: s for part, s in demands.pause_seconds.items() if s > 0},
        epoch_batches=demands.batches / epochs if epochs else math.inf,
        persistent=bool(loader.persistent_workers),
        start_s=0.0
        if loader.framework == TF_DATA
        else max(START_S, value_of(demands.start_seconds) or 0.0),
        ranks=ranks,
        storage_most=_most_at_once(facts) if not elasticity else math.inf,
        memory_s=_least_memory_seconds(facts),
    )
    return _with_helpers(pipe, facts), _errors(facts, pipe)


def _least_memory_seconds(facts: Facts) -> float:
    """What a batch takes of the host's memory, by the best rate that `fuelline probe` measured.

    A worker writes it and the trainer reads it: as much traffic as a copy of it, if by then newer
    batches have driven it out of the caches. What the transforms move comes on top and is not
    known. It is no slower than it was in the recording, whatever the probe met.
    """
    sent = value_of(facts.input.batch_bytes)
    loader = facts.loader
    if sent is None or loader is None or not loader.num_workers or facts.probe is None:
        return 0.0
    queued_bytes = sent * loader.num_workers * (loader.prefetch_factor or DEFAULT_PREFETCH)
    rates = [
        rate
        for each in facts.probe.ceilings
        if each.group == "memory" and (rate := value_of(each.signal))
    ]
    if queued_bytes < _BEYOND_CACHES_BYTES or not rates:
        return 0.0
    return min(sent / max(rates), _value(facts.demands.batch_seconds) / max(1, facts.cores.ranks))


def _most_growth(facts: Facts) -> float:
    """Copies that N threads make S times as fast as one grow by N / S at most; 0 if it was seen.

    What moves within a cache does not grow at all, and which of the two it is was not seen.
    """
    if isinstance(facts.input.cpu_growth, Reading) or facts.probe is None:
        return 0.0
    rates = {
        int(each.name.rpartition("_")[2]): rate
        for each in facts.probe.ceilings
        if each.group == "memory" and (rate := value_of(each.signal))
    }
    threads = max(rates, default=1)
    if threads == 1 or 1 not in rates:
        return 0.0
    scaling = math.log(max(1.0, rates[threads] / rates[1])) / math.log(threads)
    return max(0.0, 1 - scaling) * (value_of(facts.input.moving_share) or 0.0)


def count_in_flight(facts: Facts) -> float:
    """Fetches of all ranks that are blocked at once (Little's law)."""
    demands, ranks = facts.demands, max(1, facts.cores.ranks)
    blocked_s = _value(demands.fetch_blocked_seconds)
    return max(1.0, ranks * blocked_s / _value(demands.batch_seconds))


def _queueing(facts: Facts) -> float:
    """How blocked fetches slow each other down, where that was seen; a sleep never does."""
    growth = facts.input.blocked_growth
    asleep = value_of(facts.demands.sleep_frac) or 0.0
    if not isinstance(growth, Reading) or asleep > _MOSTLY_ASLEEP:
        return 0.0
    is_sure = growth.low is None or growth.low > 0
    return min(1.0, max(0.0, growth.value)) if is_sure else 0.0


def _with_helpers(pipe: Pipeline, facts: Facts) -> Pipeline:
    """Fetches that wait for another process of theirs: what that computes needs a core as well.

    Processes that live for moments are not seen one by one. So all that cores are busy with beyond
    the known is taken for theirs, at most for as long as fetches wait for them.
    """
    waited_s = pipe.idle_s * (value_of(facts.demands.process_frac) or 0.0)
    busy = (value_of(facts.cores.used) or 0.0) + (value_of(facts.cores.others) or 0.0)
    known_s = pipe.cpu_s + pipe.host_cpu_s + pipe.handoff_s + pipe.take_s
    beyond_s = busy * _value(facts.demands.batch_seconds) / pipe.ranks - known_s
    helpers_s = min(waited_s, max(0.0, beyond_s))
    return replace(pipe, cpu_s=pipe.cpu_s + helpers_s, idle_s=pipe.idle_s - helpers_s)


def _errors(facts: Facts, pipe: Pipeline) -> dict[str, float]:
    demands = facts.demands
    blocked = relative_error(demands.fetch_blocked_seconds)
    guessed = 0.5 if not pipe.workers else _LEAST_ERROR
    return {
        "cpu_s": relative_error(demands.fetch_cpu_seconds),
        "read_s": blocked,
        "metadata_s": blocked,
        "idle_s": blocked,
        "handoff_s": max(guessed, relative_error(demands.handoff_seconds)),
        "take_s": max(guessed, relative_error(demands.take_seconds)),
        "host_s": max(0.05, relative_error(demands.host_seconds)),
        "device_s": relative_error(demands.device_seconds),
        "rivals": RIVALS_ERROR,
        "fetch_spread": 0.5,
    }


def _elasticity(facts: Facts) -> float | None:
    """How the storage takes more requests at once; None if the recording does not show it."""
    storage = facts.storage
    if at_least(storage.limit_use, _AT_LIMIT):
        return 1.0
    if at_least(storage.device_busy, _BUSY) and at_least(storage.device_queue, _QUEUED):
        return 1.0
    seen = storage.saturation
    if isinstance(seen, Reading) and (is_sure(seen) or _is_full(seen)):
        return min(1.0, max(0.0, seen.value))
    kind = facts.probe.storage if facts.probe is not None else None
    if kind is None:
        return None
    return 1.0 if at_least(storage.in_flight, kind.requests_at_once or math.inf) else 0.0


def _most_at_once(facts: Facts) -> float:
    """Requests that fill the storage, as `probe` measured."""
    kind = facts.probe.storage if facts.probe is not None else None
    return math.inf if kind is None else float(kind.requests_at_once or math.inf)


def _is_full(growth: Reading) -> bool:
    """As in IN102: requests surely slow each other down, be it not known by how much."""
    return growth.value >= _SATURATED and (growth.low is None or growth.low > 0)


def is_sure(growth: Signal) -> bool:
    """Whether it was seen, well enough to count on, how fetches slow each other down."""
    return isinstance(growth, Reading) and (
        growth.high is None or growth.high - growth.value <= _SURE
    )


def _with_rivals(pipe: Pipeline, facts: Facts) -> Pipeline:
    """Who wants the cores beside the job, as its own waiting for one shows.

    A new arrival finds the other busy workers on average (Little's law), the trainers and the
    rivals, and gets an equal share. While the host has idle cores nobody is kept from running for
    long. What others were seen to use, beyond cores that the job may not use, they go on to want
    when the job itself wants more.
    """
    cores = facts.cores
    others, host = value_of(cores.others) or 0.0, value_of(cores.host) or pipe.cores
    beside = max(0.0, others - max(0.0, host - pipe.cores))
    rivals = max(beside, _find_queued(pipe, facts))
    idle = value_of(cores.idle)
    if idle is not None and idle > _IDLE * host:
        rivals = min(rivals, others)
    return replace(pipe, rivals=rivals)


def _find_queued(pipe: Pipeline, facts: Facts) -> float:
    """As many rivals as make fetches wait for a core as long as they did."""
    demands = facts.demands
    queued = value_of(demands.fetch_queued_seconds) or 0.0
    if not pipe.cpu_s or 1 + queued / pipe.cpu_s < _CROWDED:
        return 0.0
    rate = 1 / _value(demands.batch_seconds)
    busy = pipe.ranks * max(1.0, pipe.workers * (value_of(demands.busy_frac) or 1.0))
    running = pipe.ranks * rate * (pipe.cpu_s + queued + pipe.handoff_s) * (busy - 1) / busy
    trainer = min(1.0, rate * (pipe.host_cpu_s + pipe.take_s)) if pipe.workers else 0.0
    wanting = (1 + queued / pipe.cpu_s) * pipe.cores
    return min(_MOST_RIVALS, max(0.0, wanting - 1 - running - pipe.ranks * trainer))


def _solve(grows: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Where a growing function reaches a value, or the nearer end of the range."""
    if grows(low) >= wanted:
        return low
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if grows(middle) < wanted:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _with_pauses(pipe: Pipeline, batch_s: float) -> Pipeline:
    """How much of the pauses was felt: what the recorded time has room for."""
    paused = sum(pipe.pauses.values())
    if not paused or not pipe.beside:
        return pipe
    flowing = run(replace(pipe, pauses={})).batch_s
    return replace(pipe, pause_felt=min(1.0, max(0.0, (batch_s - flowing) / paused)))


def _anchor(pipe: Pipeline, batch_s: float) -> Pipeline | Missing:
    """Make the model reproduce the recorded time, by the one of loader and trainer that limits."""
    flow = run(pipe)
    missing_s = batch_s - flow.batch_s
    if not batch_s / _MOST_SLACK <= flow.batch_s <= batch_s * _MOST_SLACK:
        return Missing(
            reason=f"the model does not explain the recording: it gives {flow.batch_s * 1e3:.1f} "
            f"ms per batch, but {batch_s * 1e3:.1f} ms were measured"
        )
    if pipe.workers and flow.input_s > consume(pipe):
        return _solve_slack(pipe, batch_s)
    if not pipe.workers:
        return _solve_slack(pipe, batch_s) if missing_s < 0 else replace(pipe, surplus_s=missing_s)
    return replace(pipe, surplus_s=max(missing_s, -0.5 * consume(pipe)))


def _solve_slack(pipe: Pipeline, batch_s: float) -> Pipeline:
    slack = _solve(
        lambda guess: run(replace(pipe, slack=guess)).batch_s,
        batch_s,
        1 / (2 * _MOST_SLACK),
        2 * _MOST_SLACK,
    )
    # Where another law holds the model at or above the recorded time, the loader is not to blame.
    return pipe if slack <= 1 / (2 * _MOST_SLACK) else replace(pipe, slack=slack)


def _fixed_share(facts: Facts, batch_s: float) -> tuple[float | None, float]:
    """Told by batches of different sizes, which show it only where the device sets the pace.

    A host that computes also has its cost per operator: the floor of that is a lower bound, and the
    truth lies between it and 1.
    """
    demands = facts.demands
    paced = (value_of(demands.device_seconds) or 0.0) > _PACED * batch_s
    fixed = facts.compute.fixed_share
    if paced and isinstance(fixed, Reading):
        reach = 0.0 if fixed.low is None else fixed.value - fixed.low
        return fixed.value, max(_FIXED_ERROR, reach)
    floor = value_of(facts.compute.dispatch_share) if demands.device_mode == "within" else None
    if floor is None:
        return None, 0.0
    return (1 + floor) / 2, (1 - floor) / 4


def _value(signal: Signal) -> float:
    value = value_of(signal)
    return 0.0 if value is None else value


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def relative_error(signal: Signal) -> float:
    """Standard error over the value, from the interval."""
    if not isinstance(signal, Reading) or signal.low is None or signal.high is None:
        return _LEAST_ERROR
    if signal.value <= 0 or signal.level is None:
        return _LEAST_ERROR
    half = (signal.high - signal.low) / 2
    return max(_LEAST_ERROR, half / (DEVIATIONS[signal.level] * signal.value))
