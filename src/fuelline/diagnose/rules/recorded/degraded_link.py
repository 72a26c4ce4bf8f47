"""TR311 degraded-link: an accelerator's PCIe link is slower than it should be, and copies wait.

What: the link came up with fewer lanes or at a lower generation than the device and the slot
support, while the device was busy, and copying to the device takes part of the window.
Costs: the time of copies that the trainer waits for, times the missing part of the bandwidth. If
the link is saturated (80 % of what it can carry), the device's idle time is charged to it instead.
Thresholds: at most 60 % of the bandwidth, which is half of the lanes or one generation less; a loss
of 5 % to be listed. Eight replays a minute, NVIDIA's own limit (DCGM_LIMIT_MAX_PCIREPLAY_RATE), are
shown as evidence of a bad contact.
Known problem: virtual machines may report a link that is not the real one.
Fix: reseat the card or riser, check the slot and the BIOS, or move the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.devices import busy_evidence, who
from fuelline.diagnose.rule import LISTED_SHARE, fact, found
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.readings import at_least, value_of
from fuelline.schema.units import number, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.devices import DeviceFacts
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding

_DEGRADED = 0.6
_SATURATED = 0.8
_MANY_REPLAYS = 8


class DegradedLink:
    """Transfer x bandwidth."""

    code: Final = "TR311"
    name: Final = "degraded-link"
    stage: Final = "transfer"
    limit: Final = "bandwidth"

    def check(self, facts: Facts) -> Finding | None:
        """Fires for the device that loses most."""
        losses = [(_lost(device, facts), device) for device in facts.devices]
        lost, device = max(losses, key=lambda pair: pair[0], default=(0.0, None))
        if device is None or lost < LISTED_SHARE:
            return None
        return found(
            self,
            facts,
            lost,
            sentence=f"{percent(lost)} of the time is lost because the PCIe link of {who(device)} "
            f"is degraded: {device.link_text}.",
            evidence=_evidence(device, facts),
            remedies=[
                Remedy(
                    setting="reseat the card and its riser, check the slot and the BIOS; use "
                    "another device until then",
                    why="copies then run at the link's full width and generation",
                    applicability="display",
                )
            ],
            confidence="high" if at_least(device.link_use, _SATURATED) else "medium",
        )


def _lost(device: DeviceFacts, facts: Facts) -> float:
    share = value_of(device.link_share)
    if share is None or share > _DEGRADED:
        return 0.0
    waiting = facts.exposed_share_of("transfer")
    busy = value_of(device.utilisation)
    if at_least(device.link_use, _SATURATED) and busy is not None:
        waiting = max(waiting, 1 - busy)
    return waiting * (1 - share)


def _evidence(device: DeviceFacts, facts: Facts) -> list[Evidence]:
    copies = facts.exposed_share_of("transfer")
    replays = device.replays_per_min
    return [
        *fact(
            lambda v: f"{device.link_text}: {percent(v)} of the possible bandwidth",
            device.link_share,
        ),
        Evidence(what=f"{percent(copies)} of the time goes to copies to the device"),
        *fact(lambda v: f"{percent(v)} of the link's capacity is in use", device.link_use),
        *(
            fact(lambda v: f"{number(v)} packets per minute had to be sent again", replays)
            if at_least(replays, _MANY_REPLAYS)
            else []
        ),
        *busy_evidence(device),
    ]
