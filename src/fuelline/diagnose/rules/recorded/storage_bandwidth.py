"""IN102 storage-bandwidth: the storage gives all it has, and that is not enough.

What: fetches are blocked in reads, and more requests in flight would not bring more bytes.
Measured by one of: the job's cgroup limits its reads and the rate is at that limit (>= 80 %,
because token buckets pulse); the block device is busy >= 90 % of the time with two requests or more
at a time; the blocked time per byte grows with the number of fetches in progress (elasticity >=
0.5, half way between "not at all" and "in proportion"), as it shows where workers start one by one,
or the last ones of an epoch are alone; or, where the run does not show that, `fuelline probe` found
that fewer requests at once than the job has fill the storage. Limits on operations per second count
as bandwidth: more requests do not bring more either.
Known problem: what comes over a socket may be a service's answer and not a file. Stack samples
tell; without them it is called a read, with medium confidence.
Fix: fewer bytes (smaller or better compressed files, no needless reading), a faster or local disk,
a cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.split import split_input
from fuelline.diagnose.evidence.storage import (
    is_socket,
    most_at_once,
    nearer_data,
    read_evidence,
    scaling_is_seen,
)
from fuelline.diagnose.rule import LISTED_SHARE, fact, found, where
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.readings import Reading, at_least, value_of
from fuelline.schema.units import amount, percent, rate

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding
    from fuelline.schema.readings import Signal

_AT_LIMIT = 0.8
_DEVICE_BUSY = 0.9
_QUEUED = 2.0
_SATURATED = 0.5


class StorageBandwidth:
    """Read x bandwidth."""

    code: Final = "IN102"
    name: Final = "storage-bandwidth"
    stage: Final = "read"
    limit: Final = "bandwidth"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when reads dominate the wait and the storage is shown to be at its limit."""
        split = split_input(facts)
        proof = _proof(facts)
        if split is None or split.read < LISTED_SHARE or not proof:
            return None
        moved = _delivered(facts)
        speed = f"delivers {rate(moved)} and no more" if moved else "delivers all it can"
        return found(
            self,
            facts,
            split.read,
            sentence=f"{percent(split.read)} of training time is spent waiting for "
            f"{where(facts.input.place)}, which {speed}.",
            evidence=[*proof, *read_evidence(facts)],
            remedies=[
                nearer_data(facts),
                Remedy(
                    setting="store smaller samples (resized, better compressed) or keep them in "
                    "RAM",
                    why="the rate is fixed, so only fewer bytes per sample give more samples; the "
                    "gain shown is for half the bytes",
                    applicability="unsafe",
                    risk="resized or recompressed samples are not the same samples",
                    cost="the data set must be written again",
                    question=WhatIf(storage="2x"),
                ),
            ],
            confidence="medium" if is_socket(facts.input.place) else "high",
        )


def _delivered(facts: Facts) -> float | None:
    """Bytes per second from the storage; the kernel does not count those of FUSE and of sockets."""
    storage, place = facts.storage, facts.input.place
    if is_socket(place):
        return None
    ways = [storage.disk_bytes_per_s, storage.read_bytes_per_s]
    if place is not None and place.fstype.startswith("fuse"):
        ways.reverse()
    return next((moved for way in ways if (moved := value_of(way))), None)


def _proof(facts: Facts) -> list[Evidence]:
    storage = facts.storage
    proof = []
    if at_least(storage.limit_use, _AT_LIMIT):
        proof += fact(
            lambda v: f"at {percent(v)} of the limit {storage.limit_text}", storage.limit_use
        )
    if at_least(storage.device_busy, _DEVICE_BUSY) and at_least(storage.device_queue, _QUEUED):
        proof += fact(
            lambda v: f"the block device is busy {percent(v)} of the time", storage.device_busy
        )
    if at_least(storage.saturation, _SATURATED) and _surely_grows(storage.saturation):
        proof += fact(
            lambda v: f"reads take longer the more fetches are in progress (elasticity {v:.2f})",
            storage.saturation,
        )
    if not proof and not scaling_is_seen(facts):
        proof += _probed(facts)
    return proof


def _probed(facts: Facts) -> list[Evidence]:
    """What a probe of the same storage found, if that is fewer requests than the job has."""
    most = most_at_once(facts)
    if most is None or not at_least(facts.storage.in_flight, most):
        return []
    requests = amount(most, "request", "requests")
    return [Evidence(what=f"`fuelline probe` found that {requests} at a time fill it")]


def _surely_grows(saturation: Signal) -> bool:
    """Also the lower end of the interval says that requests slow each other down."""
    return isinstance(saturation, Reading) and (saturation.low is None or saturation.low > 0)
