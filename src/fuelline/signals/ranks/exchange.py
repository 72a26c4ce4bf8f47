"""The exchange between ranks: what it costs after the last rank has come, and what limits it.

Time of an exchange of `n` bytes over the wire is alpha + n / beta: a fixed latency, and a bandwidth
(R. Hockney's line). Different sizes separate the two. What lies above the line is jitter.

Gradients of DDP are exchanged while backward still runs, and only the end of that is seen: they
took at least as long as what is seen, and at most as long as since backward began. The bandwidth
from them lies between, unless collectives that were seen in full give it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.facts import ExchangeFacts
from fuelline.schema.readings import Missing, Reading, Signal, common_level
from fuelline.schema.student import DEVIATIONS
from fuelline.schema.wire import Collective
from fuelline.signals.statistics import slope, total

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fuelline.signals.ranks.hosts import HostView
    from fuelline.timeline.collectives import MatchedCollectives

_SIZES_APART = 4.0
"""Sizes must differ by this factor to separate a fixed cost from one per byte."""
_USUAL = 0.25
"""The quarter of exchanges that went best is what the network does when nothing disturbs it."""

_TWICE = {int(Collective.ALL_REDUCE), int(Collective.GRADIENTS)}
"""A ring sends (n - 1) / n of the data twice for these, once for the others."""
_WHOLE = {int(Collective.BROADCAST), int(Collective.BUFFERS), int(Collective.REDUCE)}


def fit_exchange(
    hosts: Sequence[HostView], matched: MatchedCollectives, wall_ns: int
) -> ExchangeFacts:
    """Facts about the exchanges of these collectives."""
    exchanges = _exchanges(matched)
    if not exchanges.height:
        return ExchangeFacts()
    took_ns = exchanges["took_ns"]
    share = float(took_ns.sum()) / wall_ns
    alpha, beta = _fit_line(exchanges)
    return ExchangeFacts(
        share=total(share, "frac", "collectives.exchange over window", exchanges.height),
        mean_seconds=total(float(took_ns.mean()) / 1e9, "s", "collectives.exchange"),  # type: ignore[arg-type]
        mean_bytes=total(float(exchanges["wire_bytes"].mean()), "bytes", "collectives.bytes"),  # type: ignore[arg-type]
        latency_seconds=alpha,
        bytes_per_s=beta,
        jitter_share=_jitter_share(exchanges),
        retransmit_share=_retransmit_share(hosts),
        core_wait_share=_core_wait_share(hosts, max),
        core_waits_share=_core_wait_share(hosts, sum),
    )


def _exchanges(matched: MatchedCollectives) -> pl.DataFrame:
    """One row per collective: bytes over each rank's wire, time from last arrival to last end.

    `longest_ns` is the same from when the last rank may have begun to send.
    """
    ring = (pl.col("ranks") - 1) / pl.col("ranks")
    factor = (
        pl.when(pl.col("op").is_in(_TWICE))
        .then(2 * ring)
        .when(pl.col("op").is_in(_WHOLE))
        .then(1.0)
        .otherwise(ring)
    )
    done_ns = pl.max_horizontal(matched.of("done_ns"))
    return matched.frame.select(
        "op",
        (pl.col("size_bytes") * factor).alias("wire_bytes"),
        (done_ns - pl.col("last_ns")).clip(0).alias("took_ns"),
        (done_ns - pl.max_horizontal(matched.of("open_ns"))).clip(0).alias("longest_ns"),
    ).filter(pl.col("wire_bytes") >= 0)


def _fit_line(exchanges: pl.DataFrame) -> tuple[Signal, Signal]:
    """Latency and bandwidth from the best quarter of each kind and size."""
    usual = _usual(exchanges)
    in_full = usual.filter(pl.col("op") != int(Collective.GRADIENTS))
    chosen = in_full if _sizes_differ(in_full) else usual
    sizes = chosen.filter(pl.col("wire_bytes") > 0)["wire_bytes"]
    if not sizes.len():
        missing = Missing(reason="no exchange of a known size was seen three times")
        return missing, missing
    if _sizes_differ(chosen):
        latency, seen = _line(chosen, "took_ns")
        return latency, _between(seen, _line(chosen, "longest_ns")[1])
    largest = chosen.filter(pl.col("wire_bytes") == sizes.max())
    return (
        Missing(reason="all exchanges are of about one size"),
        _between(_rate(largest, "took_ns"), _rate(largest, "longest_ns")),
    )


def _usual(exchanges: pl.DataFrame) -> pl.DataFrame:
    """The quarter of each kind and size that went best, if there were three."""
    same = ("op", "wire_bytes")
    return exchanges.filter(
        (pl.len().over(same) >= 3)
        & (pl.col("took_ns") <= pl.col("took_ns").quantile(_USUAL).over(same))
    )


def _sizes_differ(exchanges: pl.DataFrame) -> bool:
    sizes = exchanges["wire_bytes"]
    largest, smallest = float(sizes.max() or 0.0), float(sizes.min() or 0.0)  # type: ignore[arg-type]
    return largest > 0 and smallest * _SIZES_APART <= largest


def _between(most: Signal, least: Signal) -> Signal:
    """A rate that lies between two: what was seen is too short a time, the other too long."""
    if isinstance(most, Missing) or isinstance(least, Missing):
        return most
    if not 0 < least.value < most.value:
        return most
    return Reading(
        value=math.sqrt(most.value * least.value),
        unit=most.unit,
        low=least.low if least.low is not None else least.value,
        high=most.high if most.high is not None else most.value,
        level=common_level((most, least)),
        count=most.count,
        origin=f"{most.origin}, overlap with backward unknown",
    )


def _rate(exchanges: pl.DataFrame, column: str) -> Signal:
    took_s = float(exchanges[column].median()) / 1e9  # type: ignore[arg-type]
    if took_s <= 0:
        return Missing(reason="exchanges took no measurable time")
    size_bytes = float(exchanges["wire_bytes"][0])
    return total(size_bytes / took_s, "bytes/s", "exchange.bytes over time, one size")


def _line(exchanges: pl.DataFrame, column: str) -> tuple[Signal, Signal]:
    """Least squares with weights 1 / time, so that long exchanges do not drown short ones."""
    took_ns = exchanges[column].cast(pl.Float64)
    weight = 1 / (took_ns + 1e3)
    x = exchanges["wire_bytes"].cast(pl.Float64)
    y = took_ns / 1e9
    mass = float(weight.sum())
    mean_x, mean_y = float((weight * x).sum()) / mass, float((weight * y).sum()) / mass
    spread = float((weight * (x - mean_x) ** 2).sum())
    steepness = float((weight * (x - mean_x) * (y - mean_y)).sum()) / spread if spread else 0.0
    alpha_s = max(0.0, mean_y - steepness * mean_x)
    fitted = slope(x, y)
    error = fitted[1] if fitted is not None else math.inf
    latency = total(alpha_s, "s", "exchange.alpha of the fitted line", exchanges.height)
    if steepness <= 0:
        return latency, Missing(reason="larger exchanges did not take longer")
    beta = 1 / steepness
    doubt = DEVIATIONS[95] * error / steepness if math.isfinite(error) else 0.0
    return latency, Reading(
        value=beta,
        unit="bytes/s",
        low=beta / (1 + doubt),
        high=beta / max(0.05, 1 - doubt),
        level=95,
        count=exchanges.height,
        origin="exchange.beta of the fitted line",
    )


def _jitter_share(exchanges: pl.DataFrame) -> Signal:
    """Of the exchange time: above what the same exchange takes when it goes well."""
    usual = pl.col("took_ns").quantile(_USUAL).over("op", "wire_bytes")
    above = exchanges.select((pl.col("took_ns") - usual).clip(0).sum()).item()
    everything = float(exchanges["took_ns"].sum())
    if everything <= 0:
        return Missing(reason="exchanges took no measurable time")
    return total(float(above) / everything, "frac", "exchange.time above the usual")


def _retransmit_share(hosts: Sequence[HostView]) -> Signal:
    sent = sum(host.segments[0] for host in hosts)
    if sent <= 0:
        return Missing(reason="the kernel's TCP counters were not read twice")
    again = sum(host.segments[1] for host in hosts)
    return total(again / sent, "frac", "net.retransmits over segments", int(sent))


def _core_wait_share(
    hosts: Sequence[HostView], joined: Callable[[Sequence[float]], float]
) -> Signal:
    """Of the host whose ranks waited most, their waits joined to one."""
    shares = [min(1.0, joined(host.core_waits)) for host in hosts if host.core_waits]
    if not shares:
        return Missing(reason="the ranks' clocks were not read")
    return total(max(shares), "frac", "clocks.runq over window", len(shares))
