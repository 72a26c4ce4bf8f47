"""What the elastic loader knows of workers on other hosts: their figures, what they would bring.

Who places them there, and how batches come from them, is not known here: a loader is given a crew
(fix.remote has the one there is) and adds its workers to its iterator like any others. Pure but
for the protocol: no clock, no torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fuelline.schema.worker_count import HEADROOM

if TYPE_CHECKING:
    from fuelline.fix.elastic.observation import Observation

__all__ = ["MOST_REMOTE", "OtherHosts", "RemoteFigures", "RemoteForecast", "predict"]

MOST_REMOTE = 64
"""Workers on other hosts of one loader; each holds a core there."""

AHEAD = 2
"""Batches under way for each that is being prepared: a worker has its next one before it asks."""
ENOUGH = 0.99
"""Of what all remote workers together would bring: fewer of them will do."""


@dataclass(frozen=True)
class RemoteFigures:
    """Measured on the workers themselves, before they are used."""

    count: int
    """Workers that are ready."""
    fetch_s: float
    """One batch on one of them, at the median."""
    batch_bytes: float
    bytes_per_s: float
    """From all of them together into this host."""
    relay_s: float = 0.0
    """CPU of this host that a batch takes on its way in."""


class OtherHosts(Protocol):
    """Workers on other hosts, for one loader."""

    figures: RemoteFigures | None
    """None until they are ready, and once there are none any more."""

    def step(self, iterator: Any, needed: int) -> None:
        """At every look: find workers if this many are needed; 0 if none are."""

    def renew(self, iterator: Any) -> None:
        """An iterator has begun whose workers have the dataset as it is now."""

    def hear(self, iterator: Any, result: Any) -> bool:
        """A parked worker is back from an errand; whether workers can be opened again."""

    def open(self, iterator: Any, count: int) -> int:
        """Add so many workers to the iterator, if there are as many; how many it has then."""

    def leave(self, why: str) -> None:
        """Give them all back, for this reason; they are not asked for again."""

    def lose(self) -> str:
        """One is gone: how, in words."""

    def close(self) -> None:
        """The job ends, or the loader does."""


@dataclass(frozen=True)
class RemoteForecast:
    """What remote workers would bring."""

    count: int
    """So many are worth having."""
    rate: float
    """Batches a second with them."""
    window: int
    """Batches under way that this takes: the slowest worker must not hold up the others."""


def predict(
    look: Observation, figures: RemoteFigures, now: tuple[float, int], limits: tuple[float, int]
) -> RemoteForecast:
    """How many remote workers are worth having; `now`: batches a second, and remote workers.

    Each brings one batch a fetch, all together no more than the line carries; the trainer takes no
    more than it can use. What carries the batches in takes cores from the workers that are here.
    `limits`: cores of this host, and batches that may be under way. Order is kept, so a batch waits
    for the slowest one before it.
    """
    (present, remote), (cores, most_window) = now, limits
    own_s = (look.seconds - look.wait_s) / look.batches
    slowest_s = max(look.busy_s / max(1, look.fetches), figures.fetch_s)
    most = min(1 / own_s if own_s > 0 else math.inf, most_window / slowest_s)
    line = figures.bytes_per_s / max(1.0, figures.batch_bytes) - remote / figures.fetch_s

    def rate(more: int) -> float:
        added = max(0.0, min(more / figures.fetch_s, line))
        here = present * max(0.0, 1 - added * figures.relay_s / max(cores, 0.1))
        return max(present, min(here + added, most)) if more else present

    free = figures.count - remote
    best = max(rate(more) for more in range(free + 1))
    needed = next(more for more in range(free + 1) if rate(more) >= ENOUGH * best)
    count = min(figures.count, remote + math.ceil(HEADROOM * needed))
    window = math.ceil(AHEAD * rate(count - remote) * slowest_s)
    return RemoteForecast(count, rate(count - remote), window)
