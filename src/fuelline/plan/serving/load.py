"""The finalists of a search under a stream of requests: queues, fleets, pools by simulation.

Only the best chip's ways of cutting the model are simulated, one a size of instance: enough to
tell scaling up from
scaling out, and few enough that the whole answer takes two seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from fuelline.plan.simulation.arrivals import Arrivals, Lengths
from fuelline.plan.simulation.fleet import ServiceLimits, plan_fleet
from fuelline.plan.simulation.latencies import Slo

if TYPE_CHECKING:
    from fuelline.plan.physics.deployment import Deployment
    from fuelline.plan.serving.search import ServeCandidate, Wish
    from fuelline.schema.plan.estimates import Estimate
    from fuelline.schema.plan.simulated import FleetAnswer, FleetOption, Request

MOST_SIZES = 4
MOST_DOUBT = 1.5
"""Steps are not stretched further than this for an interval: beyond, every queue is endless."""


class Stream(Struct, frozen=True, kw_only=True):
    """How requests come."""

    burstiness: float = 1.0
    length_spread: float = 0.0
    attain_share: float = 0.95
    trace: tuple[Request, ...] = ()

    def means(self) -> dict[str, tuple[float, ...]]:
        """What a trace says of its rate and lengths, as flags would."""
        if not self.trace:
            return {}
        count, span_s = len(self.trace), max(self.trace[-1].arrival_s, 1e-3)
        return {
            "rate": (max(count - 1, 1) / span_s,),
            "in": (sum(each.prompt for each in self.trace) / count,),
            "out": (sum(each.output for each in self.trace) / count,),
        }


def simulate_finalists(
    found: list[ServeCandidate], wish: Wish, stream: Stream, token: Estimate, *, pools: bool = True
) -> FleetAnswer | None:
    """None where there is no rate to simulate."""
    if wish.rate_per_s is None or wish.sequences is not None:
        return None
    limits = ServiceLimits(
        arrivals=Arrivals(rate_per_s=wish.rate_per_s, burstiness=stream.burstiness),
        prompt=Lengths(mean=wish.prompt, spread=stream.length_spread),
        output=Lengths(mean=wish.output, spread=stream.length_spread),
        slo=Slo(ttft_s=wish.ttft_s, tpot_s=wish.tpot_s, attain_share=stream.attain_share),
        headroom=wish.headroom,
        trace=stream.trace,
    )
    doubt_ratio = min(token.high / token.value, MOST_DOUBT)
    most = wish.most_chips
    return plan_fleet(
        _sizes(found), limits, doubt_ratio, pools=pools, most_chips=most, margin=pools
    )


def lead_with(found: list[ServeCandidate], fleet: FleetAnswer | None) -> list[ServeCandidate]:
    """The way that the simulation says to buy first, as many of it as it says."""
    if fleet is None or not fleet.options:
        return found
    first = fleet.options[0]
    same = [each for each in found if _is_of(each, first)]
    rest = [each for each in found if not _is_of(each, first)]
    if first.simulated is None:
        return [*(replace(each, meets=False) for each in same), *rest]
    bought = {
        "replicas": first.bought,
        "short": first.short,
        "wanted": first.with_spares,
        "meets": True,
    }
    return [*(replace(each, **bought) for each in same), *rest]


def _is_of(found: ServeCandidate, option: FleetOption) -> bool:
    replica = found.replica
    return (replica.chip.name, replica.spread) == (option.chip, option.spread)


def _sizes(found: list[ServeCandidate]) -> list[Deployment]:
    """The best chip's best way for every size of instance."""
    chip = found[0].replica.chip.name
    here = [each.replica for each in found if each.replica.chip.name == chip]
    # Stages add memory, not speed: no more of them than the model needs to fit.
    stages = min(each.spread.pp for each in here)
    sizes: dict[int, Deployment] = {}
    for each in here:
        if each.spread.pp == stages:
            sizes.setdefault(each.spread.chips, each)
    return list(sizes.values())[:MOST_SIZES]
