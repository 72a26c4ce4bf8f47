"""Nouns of a simulated service: requests, the latencies they got, and the fleet that a rate needs.

Times are seconds since the first request could arrive. A quantile is over requests. Nothing here
computes; `plan.simulation` does.
"""

from __future__ import annotations

from msgspec import Struct

from fuelline.schema.plan.estimates import Parallelism  # noqa: TC001 - msgspec resolves it at run time


class Request(Struct, frozen=True, gc=False):
    """One question to a service."""

    arrival_s: float
    prompt: int
    """Tokens to be read."""
    output: int
    """Tokens to be written, at least one."""
    first_s: float | None = None
    """When the first token came, if another pool has read the prompt already."""
    asked_s: float | None = None
    """When the user asked, if that was another pool; None: at `arrival_s`."""
    underway: bool = False
    """Began before the simulation did: it fills the service and counts in no figure."""

    @property
    def since_s(self) -> float:
        """From when the user has waited."""
        return self.arrival_s if self.asked_s is None else self.asked_s


class Served(Struct, frozen=True):
    """What became of a request."""

    request: Request
    started_s: float
    """When its first prompt token went into a step."""
    first_s: float
    """When its first output token came."""
    end_s: float
    preempted: int = 0
    """How often its cache was dropped to make room for others."""

    @property
    def ttft_s(self) -> float:
        """Time to first token. High: queueing or a long prompt."""
        return self.first_s - self.request.since_s

    @property
    def tpot_s(self) -> float | None:
        """Mean time between output tokens after the first; None for an output of one token."""
        if self.request.output < 2:
            return None
        return (self.end_s - self.first_s) / (self.request.output - 1)


class Quantiles(Struct, frozen=True, kw_only=True):
    """Of a time in seconds."""

    mean: float
    p50: float
    p95: float
    p99: float
    p95_low: float | None = None
    """With the step model at the fast end of its 80 % interval."""
    p95_high: float | None = None
    """At the slow end: near saturation a little slower means much longer queues."""


class Simulated(Struct, frozen=True, kw_only=True):
    """A service under a load."""

    requests: int
    """Finished ones that count: those of the start, when the service was empty, do not."""
    refused: int
    """Longer than the cache of a replica."""
    ttft_s: Quantiles
    tpot_s: Quantiles | None
    end_to_end_s: Quantiles
    attained_share: float
    """Of the requests that kept every limit asked for; refused ones did not."""
    busy_share: float
    """Of the time that a replica is in a step. Near 1: the next burst queues."""
    running: float
    """Requests in a replica at once, queued ones included, averaged over time."""
    preempted_share: float
    """Of requests whose cache was dropped at least once: the cache is too small for the load."""
    output_tokens_per_s: float
    """Of one replica."""
    overloaded: bool
    """Requests arrive faster than they are served: the queue grows as long as the load lasts, and
    latencies say only how long was simulated."""
    replicas: int = 1


class FleetOption(Struct, frozen=True, kw_only=True):
    """One size of instance, and how many of it a rate needs."""

    chip: str
    spread: Parallelism
    """Of one instance: larger is scaling up, more replicas is scaling out."""
    replicas: int
    """That meet the limits with nothing to spare."""
    with_headroom: int
    """With the headroom asked for."""
    with_spares: int
    """With spares for what is broken at any time; what to buy."""
    chips: int
    """Of those that are bought, spares included."""
    usd_per_hour: float | None
    simulated: Simulated | None
    """At `replicas`; None if no number of replicas meets the limits."""
    why_not: str = ""
    bought: int = 0
    """What to have: `with_spares`, or as many as the chips allowed hold."""
    carries_per_s: float | None = None
    """Requests that `bought` instances meet the limits for, with nothing to spare."""
    short: bool = False
    """`bought` is too few for the rate with headroom."""


class PoolsOption(Struct, frozen=True, kw_only=True):
    """Prefill and decode apart, simulated."""

    prefill_replicas: int
    decode_replicas: int
    transfer_s: float
    """The cache of a mean prompt over the network."""
    simulated: Simulated
    together: Simulated
    """The same number of replicas with both on each."""
    pays: bool
    why: str


class FleetAnswer(Struct, frozen=True, kw_only=True):
    """What a rate with limits needs, by simulation."""

    arrivals: str
    """How requests came, in words."""
    rate_per_s: float
    ttft_limit_s: float | None
    tpot_limit_s: float | None
    attain_share: float
    """Of requests that must meet the limits."""
    options: tuple[FleetOption, ...]
    """Cheapest first; those that cannot meet the limits last."""
    pools: PoolsOption | None = None
    advice: tuple[str, ...] = ()
    needed_chips: int | None = None
    """Fewest that hold the rate with headroom and spares, however many are allowed; None if no
    size meets the limits."""
