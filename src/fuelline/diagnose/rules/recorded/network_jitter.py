"""SY605 network-jitter: the same exchange usually takes far longer than it could.

What: the time from the last arrival at a collective to its end, above what the best quarter of
exchanges of the same kind and size takes. Lost packets and shared links look like this.
Threshold: 5 % of the window to be listed, 10 % to be the verdict; at least half of the exchange
time must lie above the usual, and waiting for a core must not explain it. If one segment in a
hundred was retransmitted, a quarter is enough: then losses slow the usual exchange too.
Fix: find the loss: retransmissions, drops, a neighbour on the link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.network import limit_of_exchange, report_exchange
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.readings import value_of
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class NetworkJitter:
    """Sync x jitter, from the network."""

    code: Final = "SY605"
    name: Final = "network-jitter"
    stage: Final = "sync"
    limit: Final = "jitter"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if the same exchange usually takes far longer than it could."""
        exchange = facts.sync.exchange
        if limit_of_exchange(exchange) != self.limit:
            return None
        above = value_of(exchange.jitter_share) or 0.0
        return report_exchange(
            self,
            facts,
            f"{percent(above)} of that is above what the same exchange takes when it goes well, so "
            "the network is lossy or shared.",
            Remedy(
                setting="look for retransmissions and drops along the path (`ss -ti`, "
                "`ethtool -S`)",
                why="a lost packet holds up a collective, and with it all ranks, until a timeout",
                applicability="display",
            ),
        )
