"""What rules about the exchange between ranks share: which term of its time is the largest.

The time from the last arrival at a collective to its end is alpha + bytes / beta, a line through
exchanges of different sizes; what lies above the line is jitter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.diagnose.rule import LISTED_SHARE, fact, found
from fuelline.schema.readings import Missing, at_least, below, value_of
from fuelline.schema.units import duration, percent, rate, size

if TYPE_CHECKING:
    from fuelline.diagnose.rule import Rule
    from fuelline.schema.facts import ExchangeFacts, Facts
    from fuelline.schema.findings import Evidence, Finding, Limit, Remedy

_MOSTLY = 0.5
"""Jitter is the limit if at least half of the exchange time lies above what is usual."""
_LOSSY = 0.001
"""Of the segments sent again: ten times what a healthy network does."""


def limit_of_exchange(exchange: ExchangeFacts) -> Limit | None:
    """Which term of alpha + bytes / beta + jitter is the largest for a mean exchange."""
    share, mean_s = exchange.share, value_of(exchange.mean_seconds)
    if isinstance(share, Missing) or share.value < LISTED_SHARE or not mean_s:
        return None
    if (value_of(exchange.jitter_share) or 0.0) >= _MOSTLY:
        return "jitter" if _is_the_networks(exchange, share.value) else None
    rate, alpha_s = value_of(exchange.bytes_per_s), value_of(exchange.latency_seconds)
    if rate is None:
        return "latency" if alpha_s else None
    moving_s = (value_of(exchange.mean_bytes) or 0.0) / rate
    return "latency" if (alpha_s or 0.0) > moving_s else "bandwidth"


def _is_the_networks(exchange: ExchangeFacts, share: float) -> bool:
    """Whether exchanges vary because of the network, and not because ranks lack cores."""
    if at_least(exchange.retransmit_share, _LOSSY):
        return True
    jitter = share * (value_of(exchange.jitter_share) or 0.0)
    return below(exchange.core_wait_share, _MOSTLY * jitter)


def report_exchange(rule: Rule, facts: Facts, what: str, remedy: Remedy) -> Finding:
    """The finding of one of these rules."""
    share = value_of(facts.sync.exchange.share) or 0.0
    sentence = f"{percent(share)} of the time ranks exchange data and compute nothing: {what}"
    return found(
        rule,
        facts,
        share,
        sentence=sentence,
        evidence=_evidence(facts.sync.exchange),
        remedies=[remedy],
    )


def _evidence(exchange: ExchangeFacts) -> list[Evidence]:
    return [
        *fact(lambda v: f"an exchange takes {duration(v)} on average", exchange.mean_seconds),
        *fact(lambda v: f"it moves {size(v)} over each rank's link", exchange.mean_bytes),
        *fact(lambda v: f"each further byte runs at {rate(v)}", exchange.bytes_per_s),
        *fact(lambda v: f"an exchange of nothing takes {duration(v)}", exchange.latency_seconds),
        *fact(lambda v: f"{percent(v)} of the time is above the usual", exchange.jitter_share),
        *fact(lambda v: f"{percent(v)} of the segments were sent again", exchange.retransmit_share),
    ]
