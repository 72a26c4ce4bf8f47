"""SY604 network-latency: ranks wait for many small exchanges, whatever their size.

What: the time from the last arrival at a collective to its end, most of which is the fixed cost of
an exchange: a line through exchanges of different sizes is almost flat. If all exchanges have the
same size, they must run slower than 10 Mbit/s, which no link does.
Threshold: 5 % of the window to be listed, 10 % to be the verdict; the fixed cost must be the larger
term. Waiting for a core is taken off first.
Fix: fewer, larger collectives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.network import limit_of_exchange, report_exchange
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.readings import value_of
from fuelline.schema.units import duration

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class NetworkLatency:
    """Sync x latency."""

    code: Final = "SY604"
    name: Final = "network-latency"
    stage: Final = "sync"
    limit: Final = "latency"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if the fixed cost is most of an exchange."""
        exchange = facts.sync.exchange
        if limit_of_exchange(exchange) != self.limit:
            return None
        alpha = value_of(exchange.latency_seconds) or value_of(exchange.mean_seconds) or 0.0
        return report_exchange(
            self,
            facts,
            f"each exchange takes {duration(alpha)}, however small it is.",
            Remedy(
                setting="fewer, larger collectives: a larger bucket_cap_mb, or gradient "
                "accumulation with no_sync()",
                why="the cost of an exchange hardly depends on its size here",
                applicability="unsafe",
                risk="gradient accumulation changes the effective batch size",
            ),
        )
