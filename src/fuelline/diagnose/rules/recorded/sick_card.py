"""CP403 sick-card: an accelerator has hardware errors that no setting can fix.

What: the driver lost the device in mid-run; it counts memory errors that could not be corrected;
bad memory is waiting for a reset or can no longer be replaced; NVLink had to replay or recover.
Costs: the part of the window after the device was lost. Errors alone cost no time that could be
measured, so they are listed at zero; do not trust the results of a card with uncorrected errors.
Thresholds: one is enough, as in NVIDIA's own health checks (DCGM_LIMIT_MAX_NVLINK_ERROR); checksum
errors of NVLink count from 100 per second (DCGM_LIMIT_MAX_NVLINK_CRC_ERROR). Remapped rows that
are in use are not an error: the card has repaired itself.
Fix: drain the node, reset the card, and have it replaced if the error comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.devices import who
from fuelline.diagnose.rule import fact, found
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.readings import at_least, value_of
from fuelline.schema.units import number, percent

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.schema.diagnosis.devices import DeviceFacts
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding
    from fuelline.schema.readings import Signal

_MANY_CRC_PER_S = 100.0


class SickCard:
    """Compute x hardware."""

    code: Final = "CP403"
    name: Final = "sick-card"
    stage: Final = "compute"
    limit: Final = "hardware"

    def check(self, facts: Facts) -> Finding | None:
        """Fires for the first device with an error, lost ones before others."""
        sick = [(device, _symptoms(device)) for device in facts.devices]
        sick = [pair for pair in sick if pair[1]]
        sick.sort(key=lambda pair: not pair[0].is_lost)
        if not sick:
            return None
        device, symptoms = sick[0]
        lost = value_of(device.lost_share) or 0.0
        others = [Evidence(what=f"{who(other)} is faulty too") for other, _ in sick[1:4]]
        return found(
            self,
            facts,
            lost,
            sentence=f"{who(device)} is faulty: {symptoms[0].what}.",
            evidence=[*symptoms, *others],
            remedies=[
                Remedy(
                    setting="drain the node and reset the card (NVIDIA: `nvidia-smi -r -i INDEX`); "
                    "have it replaced if the error comes back",
                    why="a reset takes bad memory out of use and retrains the links",
                    applicability="display",
                    risk="ends all work on that card",
                )
            ],
        )


def _symptoms(device: DeviceFacts) -> list[Evidence]:
    gone = percent(value_of(device.lost_share) or 0.0)
    lost = Evidence(
        what=f"the driver lost it with {gone} of the time still to go", signal=device.lost_share
    )
    return [
        *([lost] if device.is_lost else []),
        *_if_any(
            device.ecc_uncorrected, lambda v: f"{number(v)} memory errors could not be corrected"
        ),
        *_if_any(device.rows_failed, lambda _: "bad memory can no longer be replaced"),
        *_if_any(device.rows_pending, lambda _: "bad memory is waiting for a reset"),
        *_if_any(
            device.nvlink_errors, lambda v: f"NVLink had to recover or replay {number(v)} times"
        ),
        *_if_any(
            device.nvlink_crc_per_s,
            lambda v: f"{number(v)} NVLink checksum errors per second",
            _MANY_CRC_PER_S,
        ),
    ]


def _if_any(signal: Signal, words: Callable[[float], str], least: float = 1.0) -> list[Evidence]:
    return fact(words, signal) if at_least(signal, least) else []
