"""IN101 slow-reads: few requests are in flight and each takes long.

What: while training waits, the threads that fetch batches are blocked in reads, and nothing says
that the storage is at its limit: the time of a request does not grow with the number in flight.
Why: a network mount, an object store or a remote disk answers each request after a round trip.
More requests at once bring more bytes.
Not the same as: bandwidth (IN102), which shows as saturation and limits; small files (IN105), where
other calls block; other users (IN103) and a squeezed page cache (IN104), which have counters of
their own.
Known problem: if several requests are always in flight and their number hardly changes, the run may
not show whether they wait for each other. Then the answer is "latency or bandwidth" with medium
confidence, and the remedies are the commands that would tell. The kernel does not count bytes
that come through sockets, so a full link to an object store looks like a slow one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.split import split_input
from fuelline.diagnose.evidence.storage import (
    ask_storage,
    is_socket,
    more_in_flight,
    most_at_once,
    nearer_data,
    read_evidence,
    scaling_is_seen,
)
from fuelline.diagnose.evidence.tf_data import is_tf_data
from fuelline.diagnose.rule import LISTED_SHARE, found, where
from fuelline.schema.readings import at_least, value_of
from fuelline.schema.units import duration, number, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding, Remedy


_SEVERAL = 1.5
"""Requests in flight: with fewer each is mostly alone, and its time is the storage's own."""


class SlowReads:
    """Read x latency."""

    code: Final = "IN101"
    name: Final = "slow-reads"
    stage: Final = "read"
    limit: Final = "latency"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when reads dominate the wait; more specific rules about reading come first."""
        split = split_input(facts)
        if split is None or split.read < LISTED_SHARE:
            return None
        return found(
            self,
            facts,
            split.read,
            sentence=_sentence(facts, split.read),
            evidence=read_evidence(facts),
            first=ask_storage(facts) if _is_open(facts) else [],
            remedies=[
                *_more_at_once(facts),
                nearer_data(facts),
            ],
            confidence="high"
            if scaling_is_seen(facts) and not is_socket(facts.input.place)
            else "medium",
        )


def _more_at_once(facts: Facts) -> list[Remedy]:
    """Not where it may be of no use; a larger pool of tf.data costs nothing to try."""
    if _is_open(facts) and not is_tf_data(facts.loader):
        return []
    return [more_in_flight(facts)]


def _sentence(facts: Facts, share: float) -> str:
    flight, each = value_of(facts.storage.in_flight), value_of(facts.storage.request_seconds)
    detail = ""
    if flight is not None and each is not None:
        detail = f": {number(flight)} in flight, {duration(each)} each"
    doubt = " Latency or bandwidth: the run does not show which." if _is_open(facts) else ""
    return (
        f"{percent(share)} of training time is spent waiting for reads from "
        f"{where(facts.input.place)}{detail}.{doubt}"
    )


def _is_open(facts: Facts) -> bool:
    """Several requests are in flight, and neither the run nor a probe shows if they queue."""
    if not at_least(facts.storage.in_flight, _SEVERAL):
        return False
    return not scaling_is_seen(facts) and most_at_once(facts) is None
