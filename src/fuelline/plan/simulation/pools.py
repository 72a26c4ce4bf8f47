"""Prefill and decode on instances of their own, simulated: the ratio, and whether it pays.

A prompt is read in the first pool, which gives the first token; its cache crosses the network; the
second pool
writes the rest and never stops for a prompt. The smallest pools that meet the limits are found one
after
the other and compared with instances that do both.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fuelline.plan.physics.deployment import CHUNK_TOKENS
from fuelline.plan.physics.exchanges import BUS_GBPS
from fuelline.plan.simulation.latencies import BACKLOG_SHARE, summarise
from fuelline.plan.simulation.replica import run_replica
from fuelline.plan.simulation.service import SURELY, ServiceLimits, deal, serve, turns
from fuelline.plan.simulation.steps import find_lanes, find_room, remember_steps
from fuelline.schema.plan.chips import GIGA
from fuelline.schema.plan.simulated import PoolsOption, Request

if TYPE_CHECKING:
    from fuelline.plan.physics.deployment import Deployment
    from fuelline.plan.simulation.replica import ReplicaRun, Room, StepTime
    from fuelline.schema.plan.simulated import Served, Simulated

READ = 1000
"""Requests that are simulated at least: the writers share them, each gets about a hundred."""
MOST_READ = 8000
"""At most; as many as fill the pools several times where that is fewer."""
MOST_TRIED = 10
"""Instances whose split is searched; of a larger fleet a part of this size is."""


def transfer_seconds(instance: Deployment, prompt: float) -> float:
    """Time of a prompt's cache over the network cards of one instance."""
    moved = instance.model.kv_values(prompt) * instance.precision.kv_bytes
    link = (instance.chip.scaleout_gbps or BUS_GBPS) * GIGA * instance.spread.shards
    return moved / link


def split_service(instance: Deployment, together: int, limits: ServiceLimits) -> PoolsOption | None:
    """The smallest pools that meet the limits against `together` instances that do both."""
    step = remember_steps(instance)
    both = serve(instance, together, limits, step)
    if both is None:
        return None
    share = max(together / MOST_TRIED, 1.0)
    most = max(math.ceil(together / share) + 2, 2)
    held = turns(both) * together / share
    read = round(min(max(held, READ), MOST_READ))
    apart = _smallest_pools(instance, _part_of(limits, share), step, (most, read))
    transfer_s = transfer_seconds(instance, limits.prompt.mean)
    if apart is None:
        return PoolsOption(
            prefill_replicas=0,
            decode_replicas=0,
            transfer_s=transfer_s,
            simulated=both,
            together=both,
            pays=False,
            why=f"no split of {math.ceil(most * share)} instances or fewer keeps the limits",
        )
    prefill, decode = (math.ceil(each * share) for each in apart[:2])
    return PoolsOption(
        prefill_replicas=prefill,
        decode_replicas=decode,
        transfer_s=transfer_s,
        simulated=replace(apart[2], replicas=prefill + decode),
        together=both,
        pays=prefill + decode < together,
        why=_why(prefill + decode, together),
    )


def _part_of(limits: ServiceLimits, share: float) -> ServiceLimits:
    """A large fleet behaves like this many fleets of a tenth: one of them is simulated."""
    arrivals = replace(limits.arrivals, rate_per_s=limits.arrivals.rate_per_s / share)
    return replace(limits, arrivals=arrivals, trace=limits.trace[:: max(round(share), 1)])


def _why(apart: int, together: int) -> str:
    if apart < together:
        return (
            f"{apart} instances apart do what {together} do together: no token waits for a prompt"
        )
    if together == 1:
        return "one instance carries the load; two pools need two"
    if apart == together:
        return f"both ways need {together} instances, and two pools are harder to run"
    return f"apart needs {apart} instances, together {together}: pools are not shared at peaks"


def _smallest_pools(
    instance: Deployment, limits: ServiceLimits, step: StepTime, tried: tuple[int, int]
) -> tuple[int, int, Simulated] | None:
    """First as many readers as the first token needs, then as many writers as the others need.

    `tried` are the most instances and the requests to simulate.
    """
    most, requests = tried
    share = limits.slo.attain_share
    least_readers, least_writers = _fewest(instance, limits)
    for readers in range(least_readers, most):
        read = _read_prompts(instance, readers, limits, step, requests)
        if not _is_late(read) and _first_tokens_kept(read, limits, instance) >= share:
            break
    else:
        return None
    for writers in range(least_writers, most - readers + 1):
        found = _write_rest(read, writers, instance, limits, step)
        if found and not found.overloaded and found.attained_share >= share:
            return readers, writers, replace(found, replicas=readers + writers)
    return None


def _fewest(instance: Deployment, limits: ServiceLimits) -> tuple[int, int]:
    """Readers and writers below which even full batches could not keep up with the rate."""
    prompt, output = max(limits.prompt.mean, 1.0), limits.output.mean
    lanes = find_lanes(instance, limits.context)
    most = max(instance.most(limits.context) * instance.spread.dp / lanes, 1.0)
    together = max(CHUNK_TOKENS / prompt, 1.0)
    read_s = instance.prefill(together, prompt).seconds / together
    write_s = output * instance.decode(most, prompt + output / 2).seconds / most
    rate = SURELY * limits.arrivals.rate_per_s / lanes
    return max(int(rate * read_s), 1), max(int(rate * write_s), 1)


def _read_prompts(
    instance: Deployment, readers: int, limits: ServiceLimits, step: StepTime, count: int
) -> list[ReplicaRun]:
    requests = next(iter(deal(limits, 1, count)))[:count]
    room = replace(find_room(instance, limits.context, limits.chunk_tokens), prompts_only=True)
    lanes = readers * find_lanes(instance, limits.context)
    return _run(requests, lanes, lanes, step, room)


def _is_late(read: list[ReplicaRun]) -> bool:
    served = sum(len(run.served) for run in read)
    return sum(run.backlog for run in read) > BACKLOG_SHARE * served + 2


def _first_tokens_kept(
    read: list[ReplicaRun], limits: ServiceLimits, instance: Deployment
) -> float:
    fixed_s = instance.engine.first_token_ms * 1e-3
    first = replace(limits.slo, tpot_s=None)
    kept = [first.kept(each, fixed_s) for run in read for each in run.served]
    return sum(kept) / max(len(kept), 1)


def _write_rest(
    read: list[ReplicaRun],
    writers: int,
    instance: Deployment,
    limits: ServiceLimits,
    step: StepTime,
) -> Simulated | None:
    per_token_s = transfer_seconds(instance, 1.0)
    handed = [
        _hand_over(each, per_token_s)
        for run in read
        for each in run.served
        if each.request.output > 1
    ]
    room = find_room(instance, limits.context, limits.chunk_tokens)
    runs = _run(handed, writers * find_lanes(instance, limits.context), 1, step, room)
    fixed_s = instance.engine.first_token_ms * 1e-3
    return summarise(runs, limits.slo, extra_s=fixed_s)


def _run(
    requests: list[Request], hands: int, simulated: int, step: StepTime, room: Room
) -> list[ReplicaRun]:
    in_order = sorted(requests, key=lambda each: each.arrival_s)
    dealt = (in_order[hand::hands] for hand in range(min(hands, simulated)))
    return [run_replica(hand, step, room) for hand in dealt if hand]


def _hand_over(served: Served, per_token_s: float) -> Request:
    asked = served.request
    arrival_s = served.end_s + per_token_s * asked.prompt
    return Request(arrival_s, asked.prompt, asked.output, served.first_s, asked.arrival_s)
