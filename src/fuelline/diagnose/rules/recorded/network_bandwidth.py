"""SY603 network-bandwidth: ranks wait for the bytes of their collectives.

What: the time from the last arrival at a collective to its end. All ranks are there by then, so
nobody is late. A line through exchanges of different sizes shows that bytes, not a fixed cost,
take the time. If all exchanges have the same size, it must be at least a megabyte.
Threshold: 5 % of the window to be listed, 10 % to be the verdict; bytes must be the larger term.
Waiting for a core is taken off first.
Fix: a faster link, or fewer bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.network import limit_of_exchange, report_exchange
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.readings import value_of
from fuelline.schema.units import rate, size

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class NetworkBandwidth:
    """Sync x bandwidth."""

    code: Final = "SY603"
    name: Final = "network-bandwidth"
    stage: Final = "sync"
    limit: Final = "bandwidth"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if the bytes are most of an exchange."""
        exchange = facts.sync.exchange
        if limit_of_exchange(exchange) != self.limit:
            return None
        speed = value_of(exchange.bytes_per_s) or 0.0
        moved = value_of(exchange.mean_bytes) or 0.0
        return report_exchange(
            self,
            facts,
            f"{size(moved)} each time, at {rate(speed)}.",
            Remedy(
                setting="a faster link (check the interface: GLOO_SOCKET_IFNAME, "
                "NCCL_SOCKET_IFNAME), or fewer bytes: "
                "ddp.register_comm_hook(None, bf16_compress_hook)",
                why="the number of bytes decides how long an exchange takes",
                applicability="unsafe",
                risk="compressed gradients are rounded",
            ),
        )
