"""Evidence and remedies that the rules about reading share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.diagnose.evidence.own_source import is_own_source, more_threads
from fuelline.diagnose.evidence.tf_data import (
    bigger_pool,
    is_tf_data,
    nearer_files,
    node_evidence,
    packed_files,
)
from fuelline.diagnose.rule import (
    FETCH_SAMPLES,
    count_workers,
    fact,
    gain_of_workers,
    line_fact,
    place_fact,
    workers_now,
)
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.diagnosis.trials import risk_of_workers
from fuelline.schema.readings import Reading, at_least
from fuelline.schema.units import amount, duration, percent, rate
from fuelline.schema.worker_count import MOST_STRETCH

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts, PlaceFacts


_LOCAL = ("btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "xfs", "zfs")


def read_evidence(facts: Facts) -> list[Evidence]:
    """What every finding about reading shows."""
    speed = facts.storage.read_bytes_per_s
    return [
        *place_fact(facts.input.place),
        *fact(
            lambda v: f"{percent(v)} of fetch time is spent blocked in reads",
            facts.input.read_share,
        ),
        *fact(
            lambda v: f"{percent(v)} of fetch time is spent blocked in open, stat ...",
            facts.input.metadata_share,
        ),
        *fact(
            lambda v: f"{amount(v, 'thread', 'threads')} blocked on storage at a time",
            facts.storage.in_flight,
        ),
        *fact(lambda v: f"{duration(v)} blocked per read call", facts.storage.request_seconds),
        *(fact(lambda v: f"{rate(v)} read by the loader", speed) if at_least(speed, 1.0) else []),
        *line_fact(facts.fetch_lines, FETCH_SAMPLES),
        *node_evidence(facts),
    ]


def is_socket(place: PlaceFacts | None) -> bool:
    """Whether it comes over the network: a store of files, or a service that no stack shows."""
    return place is not None and not place.mount


def scaling_is_seen(facts: Facts) -> bool:
    """Whether the run shows that requests wait for each other in proportion, or that they do not.

    The elasticity is near 0 for latency and near 1 for bandwidth; an interval that holds both tells
    nothing.
    """
    seen = facts.storage.saturation
    if not isinstance(seen, Reading):
        return False
    low, high = (seen.value if end is None else end for end in (seen.low, seen.high))
    return low > 0 or high < 1


def most_at_once(facts: Facts) -> float | None:
    """Requests at a time that fill the storage, as `probe` measured; None if it is not known.

    Infinity if as many as it tried did not.
    """
    kind = facts.probe.storage if facts.probe is not None else None
    if kind is None:
        return None
    return math.inf if kind.requests_at_once is None else float(kind.requests_at_once)


def ask_storage(facts: Facts) -> list[Remedy]:
    """The commands that tell latency from bandwidth."""
    place = facts.input.place
    probe = f"fuelline probe {place.mount if place is not None and place.mount else 'DATA_DIR'}"
    more = "threads" if is_tf_data(facts.loader) else "workers"
    asked = [
        Remedy(
            setting=f"{probe}, then diagnose this run again",
            why="it measures whether more requests at once bring more data from there; if they do "
            f"not, more {more} are of no use",
            applicability="display",
            cost="half a minute of reading and writing there",
        ),
        Remedy(
            setting="fuelline run --fix",
            why="it tries more workers while the job runs, and takes them back if nothing is "
            "gained",
            applicability="display",
            by_fix=True,
        ),
    ]
    has_no_fix = is_tf_data(facts.loader) or is_own_source(facts.loader)
    return asked[:1] if has_no_fix else asked


def more_in_flight(facts: Facts) -> Remedy:
    """Waiting workers need no core: start more of them."""
    if is_tf_data(facts.loader):
        return bigger_pool(facts)
    if is_own_source(facts.loader):
        return more_threads(facts)
    workers = workers_now(facts)
    more = min(count_workers(facts), MOST_STRETCH * max(1, workers))
    return Remedy(
        setting=f"DataLoader(..., num_workers={more}, prefetch_factor=4)",
        why="each request waits for a round trip, so more requests at once bring more data; "
        "blocked workers need no core",
        applicability="unsafe",
        risk=risk_of_workers(facts.loader, more),
        at_most_speedup=gain_of_workers(facts.loader, more),
        cost=f"{more - workers} more processes with their own memory",
        question=WhatIf(workers=more, prefetch=4),
    )


def nearer_data(facts: Facts) -> Remedy:
    """Get rid of the slow storage."""
    place = facts.input.place
    if is_tf_data(facts.loader):
        return nearer_files()
    if place is not None and place.fstype in _LOCAL:
        return Remedy(
            setting=f"move the data from {place.mount} to a faster disk, or keep it in memory "
            "(/dev/shm)",
            why="this disk, or the limit set for it, can deliver no more",
            applicability="display",
            cost="the data set's size in memory",
            question=WhatIf(storage="warm"),
        )
    if is_socket(place):
        return Remedy(
            setting="copy the data to a local disk before training, or have the dataset keep "
            "there what it has fetched",
            why="what comes through a socket is fetched again in every epoch; --cache serves "
            "files only",
            applicability="display",
            cost="the data set's size on a local disk",
            question=WhatIf(storage="local"),
        )
    return Remedy(
        setting=f"fuelline run --fix --cache /local/dir{_from(place)} keeps copies of what is "
        "read on a local disk; or copy the data set there before training",
        why="a local read takes microseconds where this one takes milliseconds",
        applicability="safe",
        cost="the data set's size on a local disk; the first epoch reads as before",
        question=WhatIf(storage="local"),
    )


def _from(place: PlaceFacts | None) -> str:
    """Disk space is the user's to give, so this is a command to type and not a part of --fix."""
    return "" if place is None else f" --cache-from {place.mount}"


def packed_data(facts: Facts) -> Remedy:
    """Get rid of the many files."""
    if is_tf_data(facts.loader):
        return packed_files()
    return Remedy(
        setting="fuelline pack DATA_DIR -o DIR, then fuelline run --packed DIR: the same files at "
        "the same paths, read from shards",
        why="one open and sequential reads replace thousands of opens",
        applicability="safe",
        cost="disk space for a second copy of the data set",
        question=WhatIf(storage="packed"),
    )
