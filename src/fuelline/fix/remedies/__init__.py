"""Settings that would help a job, one per file: Facts in, Remedy out. Sorted; listed by hand.

`run --fix` applies those that change nothing but speed: workers and prefetch (fix.elastic.iterator)
and the limit of descriptors (fix.elastic.channel). The others are shown with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.fix.remedies import (
    descriptors,
    non_blocking,
    optimizer,
    persistent,
    pinning,
    prefetch,
    readahead,
    threads,
)

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Remedy

__all__ = ["propose_settings"]

_ALL = (descriptors, non_blocking, optimizer, persistent, pinning, prefetch, readahead, threads)


def propose_settings(facts: Facts) -> list[Remedy]:
    """What the facts of a run suggest; all of them are settings of PyTorch."""
    if facts.loader is not None and facts.loader.framework:
        return []
    return [remedy for each in _ALL if (remedy := each.propose(facts)) is not None]
