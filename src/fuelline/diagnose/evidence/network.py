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
    from fuelline.schema.diagnosis.facts import ExchangeFacts, Facts
    from fuelline.schema.diagnosis.findings import Evidence, Finding, Limit, Remedy

_MOSTLY = 0.5
"""Jitter is the limit if at least half of the exchange time lies above what is usual."""
_LOSSY = 0.01
"""Of the segments sent again. TCP also sends again when a receiver without a core answers late:
some thousandths of all segments on a crowded host. This much only a network loses."""
_UNSTEADY = 0.25
"""Jitter is the limit of a lossy network from this share on. Where every exchange meets a loss, the
best of them do, too, and the usual is too long. A link that is only full, and drops what it cannot
carry, takes nearly the same time each time: at most 0.06 were seen."""
_SLOWEST_LINK = 1.25e6
"""Bytes per second of 10 Mbit Ethernet: whatever is slower does not wait for bytes."""
_MANY_BYTES = 1e6
"""With one size only, the fixed cost of an exchange of as much would have to be implausibly large:
it keeps 100 MB/s busy for 10 ms."""


def network_share(exchange: ExchangeFacts) -> float:
    """Of the window: ranks exchange data, and that is not for lack of cores.

    Threads that move the data and wait for a core delay the exchange by at most as much.
    """
    return max(0.0, (value_of(exchange.share) or 0.0) - (value_of(exchange.core_wait_share) or 0.0))


def limit_of_exchange(exchange: ExchangeFacts) -> Limit | None:
    """Which term of alpha + bytes / beta + jitter is the largest for a mean exchange."""
    if network_share(exchange) < LISTED_SHARE or not value_of(exchange.mean_seconds):
        return None
    limit = _largest_term(exchange)
    share, waits = value_of(exchange.share) or 0.0, exchange.core_waits_share
    if limit == "latency" and at_least(waits, _MOSTLY * share):
        return None
    return None if limit == "jitter" and not _is_the_networks(exchange) else limit


def _largest_term(exchange: ExchangeFacts) -> Limit | None:
    is_lossy = at_least(exchange.retransmit_share, _LOSSY)
    if at_least(exchange.jitter_share, _UNSTEADY if is_lossy else _MOSTLY):
        return "jitter"
    rate, mean_bytes = value_of(exchange.bytes_per_s), value_of(exchange.mean_bytes) or 0.0
    if isinstance(exchange.latency_seconds, Missing):
        return _limit_of_one_size(rate, mean_bytes)
    if rate is None:
        return "latency"
    return "latency" if exchange.latency_seconds.value > mean_bytes / rate else "bandwidth"


def unnamed_share(exchange: ExchangeFacts) -> float:
    """Of the window: exchanges that no rule can name the limit of."""
    if limit_of_exchange(exchange) is not None:
        return 0.0
    share = (value_of(exchange.share) or 0.0) - (value_of(exchange.core_waits_share) or 0.0)
    return share if share >= LISTED_SHARE else 0.0


def _limit_of_one_size(bytes_per_s: float | None, size_bytes: float) -> Limit | None:
    """Exchanges of one size fit any latency and any bandwidth; only extremes are conclusive."""
    if bytes_per_s is None:
        return None
    if bytes_per_s < _SLOWEST_LINK:
        return "latency"
    return "bandwidth" if size_bytes >= _MANY_BYTES else None


def _is_the_networks(exchange: ExchangeFacts) -> bool:
    """Whether exchanges vary because of the network, and not because ranks lack cores."""
    if at_least(exchange.retransmit_share, _LOSSY):
        return True
    jitter = (value_of(exchange.share) or 0.0) * (value_of(exchange.jitter_share) or 0.0)
    return below(exchange.core_waits_share, _MOSTLY * jitter)


def report_exchange(rule: Rule, facts: Facts, what: str, remedy: Remedy) -> Finding:
    """The finding of one of these rules."""
    exchange = facts.sync.exchange
    share = value_of(exchange.share) or 0.0
    sentence = f"Ranks spend {percent(share)} of the time exchanging data, not computing: {what}"
    return found(
        rule,
        facts,
        network_share(exchange),
        sentence=sentence,
        evidence=_evidence(exchange),
        remedies=[remedy],
    )


def _evidence(exchange: ExchangeFacts) -> list[Evidence]:
    return [
        *fact(lambda v: f"an exchange takes {duration(v)} on average", exchange.mean_seconds),
        *fact(lambda v: f"it moves {size(v)} over each rank's link", exchange.mean_bytes),
        *fact(lambda v: f"additional bytes move at {rate(v)}", exchange.bytes_per_s),
        *fact(lambda v: f"an empty exchange would take {duration(v)}", exchange.latency_seconds),
        *fact(lambda v: f"{percent(v)} of that time is above the usual", exchange.jitter_share),
        *fact(
            lambda v: f"{percent(v)} of TCP segments were retransmitted", exchange.retransmit_share
        ),
        *fact(
            lambda v: f"ranks on one host together wait for a core {percent(v)} of the time",
            exchange.core_waits_share,
        ),
    ]
