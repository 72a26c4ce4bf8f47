"""Words for a simulated fleet: sizes of instances side by side, and pools apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import Block, Heading, Item, Items, Number, Statement, Table
from fuelline.report.plan.terms import changing, draw, limit_of, spread_words
from fuelline.schema.plan.estimates import PLAN_LEVEL
from fuelline.schema.units import duration, percent, plain, short

if TYPE_CHECKING:
    from fuelline.schema.plan.answers import ServeAnswer, SweepPoint
    from fuelline.schema.plan.simulated import FleetAnswer, FleetOption, PoolsOption, Quantiles

_COLUMNS = ("instance", "need", "buy", "chips", "$/h", "ttft p50/p95", "tpot p50/p95", "kept")

_LONG_S = 10.0
"""From here on latencies are shown in seconds."""


def write_fleet(fleet: FleetAnswer) -> list[Block]:
    """Under load."""
    kept = [each for each in fleet.options if each.simulated is not None]
    blocks: list[Block] = [Heading(f"Under load, simulated: {fleet.arrivals}")]
    if kept:
        blocks.append(_table(fleet))
        blocks.append(Items(tuple(_items(kept[0], fleet))))
    missed = [
        Item(f"{_way(each)}: {each.why_not}") for each in fleet.options if each.simulated is None
    ]
    if missed:
        blocks.append(Items(tuple(missed)))
    notes = [Item(text) for text in fleet.advice]
    if fleet.pools is not None:
        notes.append(_pools(fleet.pools))
    if notes:
        blocks.append(Items(tuple(notes)))
    return blocks


def count_words(best: FleetOption, fleet: FleetAnswer, most_chips: int | None) -> str:
    """Why so many: the rate, headroom and spares; and what fewer than that would carry."""
    rate = f"{plain(fleet.rate_per_s)} requests/s"
    if best.bought >= best.with_spares or most_chips is None:
        return (
            f"{best.replicas} for {rate}, {best.with_headroom - best.replicas} for headroom, "
            f"{best.bought - best.with_headroom} as spares."
        )
    needed = f"with headroom and spares it takes --chips {fleet.needed_chips}"
    carried = best.carries_per_s or 0.0
    if best.short:
        return (
            f"--chips {most_chips:,} is too few: they carry {short(carried)} of {rate} with "
            f"nothing to spare; {needed}."
        )
    return f"They carry {rate} with headroom, but not all spares for failures fit: {needed}."


def write_rates(answer: ServeAnswer) -> list[Block]:
    """What each value of a range needs, by simulation."""
    name = answer.swept
    unit = " %" if name in ("headroom", "vary", "attain") else ""
    found = [(point.at, point.fleet) for point in answer.sweep if point.fleet is not None]
    lines = tuple(
        (f"{point.at:g}{unit}", *(_line(point.fleet, at) if point.fleet else _nothing(point)))
        for at, point in ((f"sweep/{place}/fleet", each) for place, each in enumerate(answer.sweep))
    )
    doubts = tuple(
        (f"{point.at:g}{unit}", *_doubt(point.fleet), limit_of(point.option.tpot_s))
        for point in answer.sweep
        if point.fleet is not None and point.option is not None
    )
    blocks: list[Block] = [
        Heading(f"By --{name}, simulated"),
        Table((name, *_COLUMNS), lines),
        Statement(f"and the {PLAN_LEVEL} % intervals of p95, queueing included:"),
        Table((name, f"ttft ({PLAN_LEVEL} %)", f"tpot ({PLAN_LEVEL} %)", "limit"), doubts),
    ]
    if len(found) > 1:
        bought = [(at, float(option.chips)) for at, option in found]
        series = changing([("chips to buy, spares included", bought)])
        blocks.append(draw(answer.model, {"rate": "requests/s"}.get(name, f"--{name}"), series))
    return blocks


def _doubt(option: FleetOption) -> tuple[str, str]:
    found = option.simulated
    return ("-", "-") if found is None else (_ends(found.ttft_s), _ends(found.tpot_s))


def _ends(times: Quantiles | None) -> str:
    if times is None or times.p95_low is None or times.p95_high is None:
        return "-"
    return f"{duration(times.p95)} ({duration(times.p95_low)} to {duration(times.p95_high)})"


def _nothing(point: SweepPoint) -> tuple[str, ...]:
    return (point.why_not or "nothing meets the limits", *["-"] * (len(_COLUMNS) - 1))


def _way(option: FleetOption) -> str:
    return spread_words(option.spread)


def _table(fleet: FleetAnswer) -> Table:
    lines = (
        _line(each, f"fleet/options/{place}")
        for place, each in enumerate(fleet.options)
        if each.simulated is not None
    )
    return Table(_COLUMNS, tuple(lines))


def _line(option: FleetOption, path: str) -> tuple[str, ...]:
    found, usd = option.simulated, option.usd_per_hour
    if found is None:
        raise ValueError(option.why_not)
    kept = found.attained_share
    return (
        _way(option),
        Number(str(option.replicas), option.replicas, f"{path}/replicas"),
        Number(str(option.bought), option.bought, f"{path}/bought"),
        Number(str(option.chips), option.chips, f"{path}/chips"),
        "-" if usd is None else Number(f"{usd:,.0f}", usd, f"{path}/usd_per_hour"),
        _pair(found.ttft_s),
        "-" if found.tpot_s is None else _pair(found.tpot_s),
        "too few"
        if option.short
        else Number(percent(kept), kept, f"{path}/simulated/attained_share"),
    )


def _pair(times: Quantiles) -> str:
    if times.p95 >= _LONG_S:
        return f"{short(times.p50)}/{short(times.p95)} s"
    return f"{short(times.p50 * 1e3)}/{short(times.p95 * 1e3)} ms"


def _items(best: FleetOption, fleet: FleetAnswer) -> list[Item]:
    found = best.simulated
    if found is None:
        return []
    asked = fleet.ttft_limit_s is not None or fleet.tpot_limit_s is not None
    promise = f"the limits for {percent(fleet.attain_share)} of requests" if asked else "up"
    one, single = best.replicas == 1, best.bought == 1
    promise = f"{'keeps' if one else 'keep'} {promise}"
    items = [
        Item(
            f"{best.replicas} x {best.chip} ({_way(best)}) {promise}; {best.with_headroom} with "
            "headroom, "
            f"{best.with_spares} with spares for failures (enough are up 99.9 % of the time)"
        )
    ]
    if best.carries_per_s is not None:
        share = percent(fleet.rate_per_s / best.carries_per_s)
        items.append(
            Item(
                f"{best.bought} {'carries' if single else 'carry'} {short(best.carries_per_s)} "
                "requests/s with nothing to spare: the requested rate loads "
                f"{'it' if single else 'them'} to {share}"
            )
        )
    ends = [
        f"{name} p95 {duration(times.p95_low)} to {duration(times.p95_high)}"
        for name, times in (("ttft", found.ttft_s), ("tpot", found.tpot_s))
        if times is not None and times.p95_low is not None and times.p95_high is not None
    ]
    if ends:
        items.append(Item(f"{PLAN_LEVEL} % interval with queueing: {', '.join(ends)}"))
    each = "it" if one else f"with {best.replicas}, each"
    items.append(
        Item(
            f"{each} holds {short(found.running)} requests on "
            f"average{_idle(found.busy_share)}{_preempted(found.preempted_share)}"
        )
    )
    return items


def _idle(busy_share: float) -> str:
    """A batch that never empties says nothing about how full it is: only idle time is shown."""
    return f", idle {percent(1 - busy_share)} of the time" if busy_share < 0.995 else ""


def _preempted(share: float) -> str:
    return f"; the cache overflows for {percent(share)} of requests" if share > 0 else ""


def _pools(pools: PoolsOption) -> Item:
    verdict = "pays" if pools.pays else "does not pay"
    if not pools.decode_replicas:
        return Item(f"Separating prefill and decode {verdict}: {pools.why}.")
    tpot = pools.simulated.tpot_s
    token = "" if tpot is None else f", tpot p95 {duration(tpot.p95)}"
    detail = (
        f"{pools.prefill_replicas} prefill and {pools.decode_replicas} decode instances, cache "
        f"moved in {duration(pools.transfer_s)}: ttft p95 "
        f"{duration(pools.simulated.ttft_s.p95)}{token}"
    )
    return Item(f"Separating prefill and decode {verdict}: {pools.why}.", (detail,))
