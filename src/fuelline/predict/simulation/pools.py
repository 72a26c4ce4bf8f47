"""Prefill and decode on instances of their own, simulated: the ratio, the moved cache, and whether it pays.

A prompt is read in the first pool, which gives the first token; its cache crosses the network; the second pool
writes the rest and never stops for a prompt. The smallest pools that keep the limits are found one after
the other and compared with instances that do both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from fuelline.predict.exchanges import BUS_GBPS
from fuelline.predict.simulation.latencies import BACKLOG_SHARE, summarise
from fuelline.predict.simulation.replica import run_replica
from fuelline.predict.simulation.service import MOST_SIMULATED, SEARCHED, Limits, deal, serve
from fuelline.predict.simulation.steps import find_lanes, find_room, remember_steps
from fuelline.schema.chips import GIGA
from fuelline.schema.simulated import PoolsOption, Request

if TYPE_CHECKING:
    from fuelline.predict.deployment import Deployment
    from fuelline.predict.simulation.replica import Room, Run, StepTime
    from fuelline.schema.simulated import Served, Simulated

MOST_TRIED = 24
"""Sizes of a pool that are tried at most: beyond, the split is not the answer."""


def transfer_seconds(instance: Deployment, prompt: float) -> float:
    """Time of a prompt's cache over the network cards of one instance."""
    moved = instance.model.kv_values(prompt) * instance.precision.kv_bytes
    link = (instance.chip.scaleout_gbps or BUS_GBPS) * GIGA * instance.spread.shards
    return moved / link


def split_service(instance: Deployment, together: int, limits: Limits) -> PoolsOption | None:
    """The smallest pools that keep the limits against `together` instances that do both."""
    step = remember_steps(instance)
    both = serve(instance, together, limits, step)
    if both is None:
        return None
    apart = _smallest_pools(instance, limits, step, most=max(together + 2, 2))
    transfer_s = transfer_seconds(instance, limits.prompt.mean)
    if apart is None:
        return PoolsOption(
            prefill_replicas=0,
            decode_replicas=0,
            transfer_s=transfer_s,
            simulated=both,
            together=both,
            pays=False,
            why=f"no split of {together + 2} instances or fewer keeps the limits",
        )
    prefill, decode, simulated = apart
    return PoolsOption(
        prefill_replicas=prefill,
        decode_replicas=decode,
        transfer_s=transfer_s,
        simulated=simulated,
        together=both,
        pays=prefill + decode < together,
        why=_why(prefill + decode, together),
    )


def _why(apart: int, together: int) -> str:
    if apart < together:
        return f"{apart} instances apart do what {together} do together: no token waits for a prompt"
    if together == 1:
        return "one instance carries the load; two pools need two"
    if apart == together:
        return f"both ways need {together} instances, and two pools are harder to run"
    return f"apart needs {apart} instances, together {together}: pools are not shared at peaks"


def _smallest_pools(
    instance: Deployment, limits: Limits, step: StepTime, most: int
) -> tuple[int, int, Simulated] | None:
    for total in range(2, min(most, MOST_TRIED) + 1):
        for prefill in range(1, total):
            found = serve_apart(instance, prefill, total - prefill, limits, step)
            if (
                found is not None
                and not found.overloaded
                and found.attained_share >= limits.slo.attain_share
            ):
                return prefill, total - prefill, found
    return None


def serve_apart(
    instance: Deployment, prefill: int, decode: int, limits: Limits, step: StepTime
) -> Simulated | None:
    """What users of two pools feel."""
    lanes = decode * find_lanes(instance)
    requests = next(iter(deal(limits, 1, SEARCHED * lanes)))[: SEARCHED * lanes]
    room = find_room(instance, limits.context, limits.chunk_tokens)
    readers = prefill * find_lanes(instance)
    first = _run(requests, readers, readers, step, replace(room, prompts_only=True))
    per_token_s = transfer_seconds(instance, 1.0)
    handed = [_hand_over(each, per_token_s) for run in first for each in run.served]
    second = _run(handed, lanes, MOST_SIMULATED, step, room)
    fixed_s = instance.engine.first_token_ms * 1e-3
    found = summarise(second, limits.slo, extra_s=fixed_s, replicas=prefill + decode)
    late = sum(run.backlog for run in first) > BACKLOG_SHARE * len(requests) + 2
    return replace(found, overloaded=found.overloaded or late) if found else None


def _run(
    requests: list[Request], hands: int, simulated: int, step: StepTime, room: Room
) -> list[Run]:
    in_order = sorted(requests, key=lambda each: each.arrival_s)
    dealt = (in_order[hand::hands] for hand in range(min(hands, simulated)))
    return [run_replica(hand, step, room) for hand in dealt if hand]


def _hand_over(served: Served, per_token_s: float) -> Request:
    asked = served.request
    arrival_s = served.end_s + per_token_s * asked.prompt
    return Request(arrival_s, asked.prompt, max(asked.output, 2), served.first_s, asked.arrival_s)
