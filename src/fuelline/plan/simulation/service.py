"""A service of equal replicas under a load: who gets which request, and what they all felt.

Requests go to the replicas in turn. For drawn arrivals only a few replicas are simulated: every
n-th request of
a gamma stream is a gamma stream again, with gaps that vary less by the root of n. A trace is dealt
out as it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from fuelline.plan.physics.deployment import CHUNK_TOKENS, stalls_for
from fuelline.plan.simulation.arrivals import Arrivals, Lengths, draw_requests, draw_underway
from fuelline.plan.simulation.latencies import Slo, summarise
from fuelline.plan.simulation.replica import run_replica
from fuelline.plan.simulation.steps import find_lanes, find_room, remember_steps
from fuelline.schema.plan.estimates import Slice

if TYPE_CHECKING:
    from fuelline.plan.physics.deployment import Deployment
    from fuelline.plan.simulation.replica import StepTime
    from fuelline.schema.plan.simulated import Request, Simulated

SEARCHED = 160
"""Requests a replica in a search: 95 % of them is known to about two per cent."""
SHOWN = 400
"""Requests behind a figure that is shown."""
SURELY = 0.8
"""Of the instances that a full batch would need: a search from there misses nothing, since prompts
that share a step cost less than alone."""
TURNS = 4
"""Times that a replica must fill and empty for its start not to count. It starts with what it will
hold, so that all of them tell."""
STEADY = 1.5
"""A run may be shorter than it should be by this ratio: it would be longer for nothing."""
LITTLE_ROUNDS = 6
"""What is held makes steps longer, and those make more be held: after this many rounds it is known
to a few per cent, except close to what is carried at all."""
MOST_REQUESTS = 2000
MOST_SIMULATED = 2
"""Replicas of a trace that are simulated; they are alike."""
TRACE_TURNS = 2
"""A trace gives each replica this many times the requests that a drawn stream gives."""


class ServiceLimits(Struct, frozen=True, kw_only=True):
    """A load, and what its users were promised."""

    arrivals: Arrivals
    prompt: Lengths
    output: Lengths
    slo: Slo = Slo()
    headroom: float = 0.2
    """Share of the capacity that is kept for peaks."""
    chunk_tokens: int = CHUNK_TOKENS
    trace: tuple[Request, ...] = ()
    """Taken instead of drawn requests."""
    seed: int = 1

    @property
    def context(self) -> float:
        """Of a mean request at its end."""
        return self.prompt.mean + self.output.mean

    def faster(self, factor: float) -> ServiceLimits:
        """The same requests at this many times the rate."""
        arrivals = replace(self.arrivals, rate_per_s=self.arrivals.rate_per_s * factor)
        sooner = tuple(replace(each, arrival_s=each.arrival_s / factor) for each in self.trace)
        return replace(self, arrivals=arrivals, trace=sooner)


def deal(limits: ServiceLimits, hands: int, count: int) -> list[list[Request]]:
    """The requests of some of `hands` equal receivers."""
    if limits.trace:
        window = busiest(limits.trace, TRACE_TURNS * count * hands)
        return [window[hand::hands] for hand in range(min(hands, MOST_SIMULATED))]
    arrivals = Arrivals(
        rate_per_s=limits.arrivals.rate_per_s / hands,
        burstiness=limits.arrivals.burstiness / math.sqrt(hands),
    )
    return [draw_requests(count, arrivals, limits.prompt, limits.output, limits.seed)]


def busiest(trace: tuple[Request, ...], count: int) -> list[Request]:
    """The shortest stretch with this many requests: what a fleet is sized for."""
    if len(trace) <= count:
        return list(trace)
    starts = range(len(trace) - count + 1)
    first = min(starts, key=lambda at: trace[at + count - 1].arrival_s - trace[at].arrival_s)
    return list(trace[first : first + count])


def serve(
    instance: Deployment,
    count: int,
    limits: ServiceLimits,
    step: StepTime,
    requests: int = SEARCHED,
) -> Simulated | None:
    """What users of `count` instances feel, the service being in a steady state.

    A run that is too short for the service to fill finds it too empty, so it is asked again.
    """
    lanes = find_lanes(instance, limits.context)
    held = 0.0
    if not limits.trace:
        held = _expect_held(instance, limits, step, limits.arrivals.rate_per_s / (count * lanes))
        requests = min(max(requests, round(TURNS * held)), MOST_REQUESTS)
    while True:
        found = _serve(instance, count, limits, step, (requests, round(held)))
        if found is None or limits.trace or found.overloaded or requests >= MOST_REQUESTS:
            return found
        wanted = min(round(turns(found) / lanes), MOST_REQUESTS)
        if wanted <= STEADY * requests:
            return found
        requests = wanted


def _expect_held(
    instance: Deployment, limits: ServiceLimits, step: StepTime, rate_per_s: float
) -> float:
    """Requests that a lane holds in a steady state, by Little's law; 0 if it cannot keep up."""
    room = find_room(instance, limits.context, limits.chunk_tokens)
    past = limits.prompt.mean + limits.output.mean / 2
    most = min(room.most_sequences, room.cache_tokens / past)
    prompt = Slice(1, max(min(limits.prompt.mean, room.chunk_tokens), 1.0))
    held = 1.0
    for _ in range(LITTLE_ROUNDS):
        token_s = step([Slice(held, 1, past)])
        prompt_s = step([prompt, Slice(held, 1, past)]) - token_s
        free = 1 - rate_per_s * prompt_s
        held = max(rate_per_s * limits.output.mean * token_s / free, 1.0) if free > 0 else most
        if held >= most:
            return 0.0
    return held


def looks_enough(instance: Deployment, count: int, limits: ServiceLimits, step: StepTime) -> bool:
    """Whether this many instances would keep up and keep a token's limit, were there no chance."""
    rate_per_s = limits.arrivals.rate_per_s / (count * find_lanes(instance, limits.context))
    held = _expect_held(instance, limits, step, rate_per_s)
    token_s = held / (rate_per_s * limits.output.mean)
    return held > 0 and (held == 1 or token_s <= (limits.slo.tpot_s or math.inf))


def turns(found: Simulated) -> float:
    """Requests in which an instance that holds this many fills and empties often enough."""
    return TURNS * found.running


def _serve(
    instance: Deployment, count: int, limits: ServiceLimits, step: StepTime, sizes: tuple[int, int]
) -> Simulated | None:
    """`sizes` are the requests that come to a lane, and those that it begins with."""
    requests, held = sizes
    room = find_room(instance, limits.context, limits.chunk_tokens)
    lanes = find_lanes(instance, limits.context)
    step = _held_up(instance, step, limits, limits.arrivals.rate_per_s / (count * lanes))
    begun = draw_underway(held, limits.prompt, limits.output, limits.seed)
    dealt = deal(limits, count * lanes, requests)
    runs = [run_replica([*begun, *hand], step, room) for hand in dealt if hand]
    fixed_s = instance.engine.first_token_ms * 1e-3
    found = summarise(runs, limits.slo, extra_s=fixed_s, replicas=count)
    if found is None or lanes == 1:
        return found
    every = found.output_tokens_per_s * lanes
    return replace(found, running=found.running * lanes, output_tokens_per_s=every)


def _held_up(
    instance: Deployment, step: StepTime, limits: ServiceLimits, rate_per_s: float
) -> StepTime:
    """A lane's steps with what the prompts of the instance's other lanes add to them on average."""
    if find_lanes(instance, limits.context) == 1:
        return step
    prompt_s = instance.prefill(1, max(limits.prompt.mean, 1.0)).seconds
    held = instance.most(limits.context)

    def longer(slices: list[Slice]) -> float:
        seconds = step(slices)
        prompts = rate_per_s * seconds
        return seconds + prompts * stalls_for(instance, prompts, held) * prompt_s

    return longer


def serve_with_doubt(
    instance: Deployment, count: int, limits: ServiceLimits, doubt_ratio: float
) -> Simulated | None:
    """The same with more requests, and again with steps at both ends of their interval."""
    step = remember_steps(instance)
    middle, fast, slow = (
        serve(instance, count, limits, _scaled(step, slower), SHOWN)
        for slower in (1.0, 1 / doubt_ratio, doubt_ratio)
    )
    if middle is None or fast is None or slow is None:
        return middle
    tpot = middle.tpot_s
    if tpot is not None and fast.tpot_s is not None and slow.tpot_s is not None:
        tpot = replace(tpot, p95_low=fast.tpot_s.p95, p95_high=slow.tpot_s.p95)
    return replace(
        middle,
        ttft_s=replace(middle.ttft_s, p95_low=fast.ttft_s.p95, p95_high=slow.ttft_s.p95),
        tpot_s=tpot,
    )


def _scaled(step: StepTime, factor: float) -> StepTime:
    return lambda slices: factor * step(slices)
