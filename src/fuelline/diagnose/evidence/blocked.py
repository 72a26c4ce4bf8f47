"""Evidence and a judgement that the rules about blocked workers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.diagnose.rule import FETCH_SAMPLES, fact, line_fact
from fuelline.schema.readings import Reading, value_of
from fuelline.schema.units import amount, duration, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Evidence

SERIAL = 0.5
"""Growth of a fetch's blocked time with fetches in progress, 0 to 1: from here on twice as many
workers bring less than 1.41 times as much, and the wait is more of a queue than of a latency."""

_MOSTLY = 0.5


def is_serial(facts: Facts) -> bool:
    """Whether fetches were seen to wait for each other's turn; False where that is not known."""
    growth = facts.input.blocked_growth
    workers = facts.loader.num_workers if facts.loader is not None else None
    if not isinstance(growth, Reading) or (workers or 0) < 2:
        return False
    return growth.value >= SERIAL and (growth.low is None or growth.low > 0)


def may_take_turns(facts: Facts) -> bool:
    """Whether fetches may wait for each other's turn, and nothing could show it.

    A sleep takes as long however many sleep; a service may serve one at a time. Without single
    fetches the two look the same, and what helps the one does nothing for the other.
    """
    workers = facts.loader.num_workers if facts.loader is not None else None
    asleep, blocked = value_of(facts.input.sleep_share), value_of(facts.input.blocked_share)
    is_asking = blocked is not None and (asleep or 0.0) < _MOSTLY * blocked
    return facts.input.is_estimated and (workers or 0) >= 2 and is_asking


def blocked_evidence(facts: Facts) -> list[Evidence]:
    """What every finding about blocked workers shows."""
    return [
        *line_fact(facts.fetch_lines, FETCH_SAMPLES),
        *fact(
            lambda v: f"{percent(v)} of fetch time is spent blocked, and not in reading files",
            facts.input.blocked_share,
        ),
        *fact(lambda v: f"{percent(v)} of fetch time is spent asleep", facts.input.sleep_share),
        *fact(lambda v: f"{percent(v)} of fetch time is spent computing", facts.input.cpu_share),
        *fact(
            lambda v: f"{amount(v, 'fetch', 'fetches')} in progress at a time", facts.input.fetchers
        ),
        *fact(lambda v: f"{duration(v)} to fetch one batch", facts.input.fetch_seconds),
    ]
