"""What an exchange costs and what limits it; no figure where sizes or times are missing."""

import dataclasses
from collections.abc import Iterable

import polars as pl
import pytest

from fuelline.schema.diagnosis.facts import ExchangeFacts
from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.schema.wire import Collective
from fuelline.signals import HostView
from fuelline.signals.ranks.exchange import fit_exchange
from fuelline.timeline.collectives import MatchedCollectives
from tests.unit.builders import MS
from tests.unit.signals.ranks.test_hosts import two_hosts


def fit(exchanges: Iterable[tuple[int, float]], *hosts: HostView) -> ExchangeFacts:
    """Of all-reduces of two ranks: bytes, and milliseconds after the last one came."""
    rows = [
        (int(Collective.ALL_REDUCE), size, 2, at, *[at] * 4, *[at + int(ms * MS)] * 2)
        for at, (size, ms) in enumerate(exchanges)
    ]
    moments = [f"{name}_ns_{rank}" for name in ("open", "arrive", "done") for rank in range(2)]
    names = ["op", "size_bytes", "ranks", "last_ns", *moments]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64()), orient="row")
    return fit_exchange(hosts, MatchedCollectives(frame, (0, 1)), 1000 * MS)


def why(signal: Signal) -> str:
    assert isinstance(signal, Missing)
    return signal.reason


def test_collectives_of_unknown_size_are_no_exchanges() -> None:
    assert fit([(-1, 5.0)] * 10) == ExchangeFacts()


def test_sizes_that_were_seen_twice_give_no_rate() -> None:
    found = fit([(1000, 1.0), (1000, 1.0), (9000, 2.0), (9000, 2.0)])
    assert why(found.bytes_per_s) == "no exchange of a known size was seen three times"


def test_exchanges_without_a_length_have_neither_rate_nor_jitter() -> None:
    found = fit([(1000, 0.0)] * 10)
    assert why(found.bytes_per_s) == "exchanges took no measurable time"
    assert why(found.jitter_share) == "exchanges took no measurable time"


def test_large_exchanges_that_are_no_slower_have_a_latency_and_no_bandwidth() -> None:
    found = fit([(1000, 2.0), (100_000, 2.0), (4_000_000, 1.9)] * 10)
    assert why(found.bytes_per_s) == "larger exchanges did not take longer"
    assert isinstance(found.latency_seconds, Reading)
    assert found.latency_seconds.value == pytest.approx(0.002, rel=0.05)


def test_what_was_sent_again_and_the_waits_for_cores_are_those_of_all_hosts() -> None:
    first, second = two_hosts()
    hosts = (
        dataclasses.replace(first, segments=(900.0, 1.0), core_waits=(0.1, 0.2)),
        dataclasses.replace(second, segments=(100.0, 9.0), core_waits=(0.7, 0.6)),
    )
    found = fit([(1000, 1.0)] * 10, *hosts)
    shares = (found.retransmit_share, found.core_wait_share, found.core_waits_share)
    assert [each.value for each in shares if isinstance(each, Reading)] == [0.01, 0.7, 1.0]
