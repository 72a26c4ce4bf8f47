"""How many instances of which size a rate needs: scaling up against scaling out, by simulation.

For every size of instance the smallest number is found that meets the limits for the share of
requests asked for.
Head room comes on top, and spares for instances that are broken.

Also here: the smallest number that is enough, where asking is dear and a guess is cheap.

Walks from the guess in growing strides until the answer changes, then halves. Found to two per
cent: a simulation of some hundred requests knows no better.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fuelline.plan.simulation.pools import split_service
from fuelline.plan.simulation.service import (
    SHOWN,
    SURELY,
    ServiceLimits,
    looks_enough,
    serve,
    serve_with_doubt,
)
from fuelline.plan.simulation.spares import add_spares
from fuelline.plan.simulation.steps import find_lanes, remember_steps
from fuelline.schema.plan.simulated import FleetAnswer, FleetOption, Simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fuelline.plan.physics.deployment import Deployment


__all__ = ["ServiceLimits", "plan_fleet", "smallest"]

MOST_INSTANCES = 4096
MANY_TIMES = 16
"""As many as a full batch would need, if that is more: nearly empty instances wait for nobody."""
CARRY_GRAIN = 1.03
"""What instances carry is found to this ratio: a simulation of some hundred requests knows no
better."""
MOST_TIMES = 1e4
"""The rate asked for that one instance is looked at to carry: beyond, it is as good as idle."""
MOST_CONFIRMED = 6
"""Times that a few instances are added to what the search found."""


def plan_fleet(
    instances: Sequence[Deployment],
    limits: ServiceLimits,
    doubt_ratio: float = 1.15,
    *,
    pools: bool = False,
    most_chips: int | None = None,
    margin: bool = True,
) -> FleetAnswer:
    """Sizes side by side, the cheapest that meets the limits first; never more than `most_chips`.

    Of sizes that need more, the one that carries most within them comes first. `margin` looks for
    what the first carries beyond the rate asked for, which takes as long as all the rest.
    """
    limits.arrivals.check()
    options = [_within(each, _size(each, limits), limits, most_chips) for each in instances]
    best = _first_that_keeps(instances, options)
    if best is not None:
        sure = serve_with_doubt(best[0], best[1].replicas, limits, doubt_ratio)
        carries = best[1].carries_per_s
        if carries is None and margin:
            carries = _carries(best[0], best[1], limits)
        chosen = replace(best[1], simulated=sure, carries_per_s=carries)
        options[options.index(best[1])] = chosen
    return FleetAnswer(
        arrivals=f"a trace of {len(limits.trace):,} requests"
        if limits.trace
        else limits.arrivals.words(),
        rate_per_s=limits.arrivals.rate_per_s,
        ttft_limit_s=limits.slo.ttft_s,
        tpot_limit_s=limits.slo.tpot_s,
        attain_share=limits.slo.attain_share,
        options=tuple(sorted(options, key=_rank)),
        pools=split_service(best[0], best[1].replicas, limits) if pools and best else None,
        advice=_advise(options, limits),
        needed_chips=min(
            (each.with_spares * each.spread.chips for each in options if each.simulated),
            default=None,
        ),
    )


def _rank(option: FleetOption) -> tuple[bool, bool, float, bool, float, int]:
    price = option.usd_per_hour
    lacking = -(option.carries_per_s or 0.0) if option.short else 0.0
    return (
        option.simulated is None,
        option.short,
        lacking,
        price is None,
        price or 0.0,
        option.chips,
    )


def _within(
    instance: Deployment, option: FleetOption, limits: ServiceLimits, most_chips: int | None
) -> FleetOption:
    """As many instances as the chips allow; how much those carry, if they are too few."""
    size = instance.spread.chips
    if option.simulated is None or most_chips is None or option.chips <= most_chips:
        return option
    bought = most_chips // size
    price = instance.chip.usd_per_hour
    fewer = replace(
        option,
        bought=bought,
        chips=bought * size,
        usd_per_hour=None if price is None else price * bought * size,
        short=bought < option.with_headroom,
    )
    return replace(fewer, carries_per_s=_carries(instance, fewer, limits))


def _carries(instance: Deployment, option: FleetOption, limits: ServiceLimits) -> float:
    """Requests a second that the instances bought meet the limits for, with nothing to spare."""
    step = remember_steps(instance)
    count = option.replicas

    def enough(times: float) -> bool:
        found = serve(instance, count, limits.faster(times), step)
        return found is not None and is_enough(found, limits)

    low = 1.0
    high = count / (count - 1) if count > 1 else 2.0
    while count == 1 and high < MOST_TIMES and enough(high):
        low, high = high, 2 * high
    while high > CARRY_GRAIN * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if enough(middle) else (low, middle)
    return low * limits.arrivals.rate_per_s * option.bought / count


def _with_headroom(instance: Deployment, count: int, limits: ServiceLimits) -> int:
    """Instances that would meet the limits at a rate higher by the headroom."""
    step = remember_steps(instance)
    more = limits.faster(1 / (1 - limits.headroom))

    def enough(size: int) -> bool:
        found = serve(instance, size, more, step)
        return found is not None and is_enough(found, limits)

    most = math.ceil(count / (1 - limits.headroom) - 1e-9)
    if most <= count:
        return count
    # More instances share what chance brings, so a little less than in proportion does.
    grown = _guess(instance, more) / _guess(instance, limits)
    guess = min(max(round(count * grown), count), most)
    return find_first(enough, guess, count, most - 1) or most


def _first_that_keeps(
    instances: Sequence[Deployment], options: list[FleetOption]
) -> tuple[Deployment, FleetOption] | None:
    pairs = zip(instances, options, strict=True)
    kept = [pair for pair in pairs if pair[1].simulated is not None]
    return min(kept, key=lambda pair: _rank(pair[1]), default=None)


def _size(instance: Deployment, limits: ServiceLimits) -> FleetOption:
    why = _never(instance, limits)
    count = 0 if why else smallest(instance, limits)
    if count == 0:
        why = why or f"not even {_most(instance, limits):,} instances keep the limits"
        return _option(instance, 0, limits, None, why)
    count, simulated = _confirm(instance, count, limits)
    return _option(instance, count, limits, simulated, "")


def _confirm(
    instance: Deployment, count: int, limits: ServiceLimits
) -> tuple[int, Simulated | None]:
    """With more requests than the search had; a few more instances if that was too few."""
    step = remember_steps(instance)
    found = serve(instance, count, limits, step, SHOWN)
    for _ in range(MOST_CONFIRMED):
        if found is None or is_enough(found, limits):
            break
        count += max(1, count // 20)
        found = serve(instance, count, limits, step, SHOWN)
    return count, found


def _option(
    instance: Deployment, count: int, limits: ServiceLimits, simulated: Simulated | None, why: str
) -> FleetOption:
    each = instance.spread.chips
    with_headroom = _with_headroom(instance, count, limits) if count else 0
    with_spares = add_spares(with_headroom, each) if count else 0
    price = instance.chip.usd_per_hour
    return FleetOption(
        chip=instance.chip.name,
        spread=instance.spread,
        replicas=count,
        with_headroom=with_headroom,
        with_spares=with_spares,
        chips=with_spares * each,
        usd_per_hour=None if price is None or not count else price * with_spares * each,
        simulated=simulated,
        why_not=why,
        bought=with_spares,
    )


def _never(instance: Deployment, limits: ServiceLimits) -> str:
    """Why no number of instances would do: a request alone breaks a limit."""
    slo, prompt = limits.slo, max(limits.prompt.mean, 1.0)
    if instance.room(limits.context) < 1:
        return "one request's cache does not fit"
    first = instance.prefill(1, prompt).seconds + instance.engine.first_token_ms * 1e-3
    if slo.ttft_s is not None and first > slo.ttft_s:
        return f"a prompt alone takes {first * 1e3:,.0f} ms, the limit is {slo.ttft_s * 1e3:,.0f}"
    token = instance.decode(1, prompt + limits.output.mean / 2).seconds
    if slo.tpot_s is not None and token > slo.tpot_s:
        return f"a token alone takes {token * 1e3:,.1f} ms, the limit is {slo.tpot_s * 1e3:,.1f}"
    return ""


def is_enough(found: Simulated, limits: ServiceLimits) -> bool:
    """Whether enough requests kept the limits, and the queue does not grow."""
    return not found.overloaded and found.attained_share >= limits.slo.attain_share


def smallest(instance: Deployment, limits: ServiceLimits) -> int:
    """Instances that meet the limits; 0 if no number does."""
    step = remember_steps(instance)

    def enough(count: int) -> bool:
        found = serve(instance, count, limits, step)
        return found is not None and is_enough(found, limits)

    fewest, most = _fewest(instance, limits), _most(instance, limits)
    return find_first(enough, _guess(instance, limits), fewest, most)


def _guess(instance: Deployment, limits: ServiceLimits) -> int:
    """Where the search begins: as many as would do without chance."""
    step = remember_steps(instance)
    low, high = _fewest(instance, limits), _most(instance, limits)
    while low < high:
        middle = (low + high) // 2
        if looks_enough(instance, middle, limits, step):
            high = middle
        else:
            low = middle + 1
    return low


def _most(instance: Deployment, limits: ServiceLimits) -> int:
    """Beyond this many, more of them are no help: a request alone breaks a limit."""
    return max(MOST_INSTANCES, MANY_TIMES * _fewest(instance, limits))


def _fewest(instance: Deployment, limits: ServiceLimits) -> int:
    """Below this many even a full batch could not keep up with the rate."""
    prompt, output = max(limits.prompt.mean, 1.0), limits.output.mean
    lanes = find_lanes(instance, limits.context)
    most = max(instance.most(limits.context) * instance.spread.dp / lanes, 1.0)
    token_s = instance.decode(most, prompt + output / 2).seconds / most
    work_s = output * token_s + instance.prefill(1, prompt).seconds
    return max(int(SURELY * limits.arrivals.rate_per_s * work_s / lanes), 1)


def _advise(options: list[FleetOption], limits: ServiceLimits) -> tuple[str, ...]:
    kept = [each for each in options if each.simulated is not None]
    if not kept:
        return (
            "No size meets the limits: use fewer bits per weight, faster chips, or longer limits.",
        )
    by_size = sorted(kept, key=lambda each: each.spread.chips)
    best = min(kept, key=_rank)
    advice = []
    if len(by_size) > 1:
        if best is by_size[0]:
            advice.append("Scale out: the smallest instance that keeps the limits needs least.")
        else:
            advice.append(
                f"Scale up to {best.spread.chips} chips per instance: smaller ones need more in "
                "all to "
                "keep the limits."
            )
    refused = best.simulated.refused if best.simulated else 0
    if refused:
        advice.append(f"{refused} requests are longer than the cache of one instance.")
    if limits.arrivals.burstiness > 1:
        advice.append("Bursts are what the queue is sized for; smoothing them saves instances.")
    return tuple(advice)


FINE = 50
"""A number is found to this part of it."""
COARSE = 12
"""The first stride is this part of the guess."""


def find_first(enough: Callable[[int], bool], guess: int, fewest: int, most: int) -> int:
    """The smallest from `fewest` to `most` that is enough; 0 if none is."""
    guess = min(guess, most)
    walk = _walk_down if enough(guess) else _walk_up
    low, high = walk(enough, guess, max(1, guess // COARSE), (fewest, most))
    if high > most:
        return 0
    while high - low > max(1, high // FINE):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _walk_down(
    enough: Callable[[int], bool], high: int, stride: int, ends: tuple[int, int]
) -> tuple[int, int]:
    """One that is not enough, or that nobody asks for, and one that is."""
    fewest, _ = ends
    low = max(high - stride, fewest - 1)
    while low >= fewest and enough(low):
        stride *= 2
        low, high = max(low - stride, fewest - 1), low
    return low, high


def _walk_up(
    enough: Callable[[int], bool], low: int, stride: int, ends: tuple[int, int]
) -> tuple[int, int]:
    """The same upwards; beyond the most there is nothing."""
    _, most = ends
    while low < most:
        high = min(low + stride, most)
        if enough(high):
            return low, high
        stride *= 2
        low = high
    return low, most + 1
