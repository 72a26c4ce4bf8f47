"""CP402 throttled-chip: an accelerator runs below its clock because it is hot or short of power.

What: the driver names a reason for lowering the clock (heat, a lowered power cap, a brake on the
board itself), and the clock is lower than on devices of the same kind.
Costs: the busy time of the device, times the share of the window in which it was throttled, times
the missing part of the clock. In a job of several ranks all wait for the slowest one.
Thresholds: throttled for at least a tenth of the window, and a loss of 5 % to be listed. Heat and
brakes always count. A power cap counts only if someone lowered it by more than 5 %, or if other
devices of the same name are throttled for less, by half of the window: large chips reach the
factory's cap under any heavy load, and nothing is wrong with them.
Known problem: code that waits for memory loses less than the clock does.
Fix: cool it, power it, raise the cap, or leave the device out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from fuelline.diagnose.evidence.devices import busy_evidence, wait_words, who
from fuelline.diagnose.rule import LISTED_SHARE, fact, found
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.readings import below, value_of
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.devices import DeviceFacts
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding
    from fuelline.schema.readings import Signal

_OFTEN = 0.1
_LOWERED_CAP = 0.95
_PEER_GAP = 0.5
_WORDS = {
    "heat": "is too hot",
    "power": "is not allowed to draw enough power",
    "brake": "is held back by its board",
}
_REMEDIES = {
    "heat": Remedy(
        setting="check the fans, airflow and neighbours of this card; leave it out until then",
        why="it keeps its clock only below its temperature limit",
        applicability="display",
    ),
    "power": Remedy(
        setting="nvidia-smi -i INDEX -pl WATTS; `nvidia-smi -q -d POWER` shows the default",
        why="the clock depends on how much power it may draw",
        applicability="display",
        risk="needs root; the rack must be able to supply and cool it",
    ),
    "brake": Remedy(
        setting="check power cables and supply; `nvidia-smi -q -d PERFORMANCE` names the brake",
        why="the board lowers the clock when its supply cannot keep up",
        applicability="display",
    ),
}


class _SlowedDevice(Struct, frozen=True):
    device: DeviceFacts
    reason: str
    share: float
    clock: float
    lost: float


class ThrottledChip:
    """Compute x throttle."""

    code: Final = "CP402"
    name: Final = "throttled-chip"
    stage: Final = "compute"
    limit: Final = "throttle"

    def check(self, facts: Facts) -> Finding | None:
        """Fires for the device that loses most, and names the others."""
        held = [hit for device in facts.devices if (hit := _judge(device, facts)) is not None]
        held.sort(key=lambda hit: -hit.lost)
        if not held:
            return None
        worst = held[0]
        return found(
            self,
            facts,
            worst.lost,
            sentence=f"{percent(worst.lost)} of the time is lost because {who(worst.device)} "
            f"{_WORDS[worst.reason]}: it runs at {percent(worst.clock)} of its clock for "
            f"{percent(worst.share)} of the time{wait_words(facts.devices)}.",
            evidence=_evidence(worst, held[1:]),
            remedies=[_REMEDIES[worst.reason]],
        )


def _judge(device: DeviceFacts, facts: Facts) -> _SlowedDevice | None:
    """The main reason why a device is throttled, if that costs enough to be listed."""
    shares = {
        "heat": value_of(device.thermal_share) or 0.0,
        "brake": value_of(device.hardware_share) or 0.0,
        "power": value_of(device.power_limited_share) or 0.0,
    }
    if not _is_power_unusual(device, facts.devices):
        shares["power"] = 0.0
    reason = max(shares, key=lambda name: shares[name])
    clock = value_of(device.throttled_clock)
    busy = value_of(device.utilisation)
    busy = value_of(facts.compute.compute_share) if busy is None else busy
    if shares[reason] < _OFTEN or clock is None or busy is None:
        return None
    lost = busy * shares[reason] * (1 - clock)
    return (
        _SlowedDevice(device, reason, shares[reason], clock, lost) if lost >= LISTED_SHARE else None
    )


def _is_power_unusual(device: DeviceFacts, devices: list[DeviceFacts]) -> bool:
    if below(device.power_cap_share, _LOWERED_CAP):
        return True
    share = value_of(device.power_limited_share) or 0.0
    like = [each for each in devices if each.name == device.name and each is not device]
    return any(below(each.power_limited_share, share - _PEER_GAP) for each in like)


def _evidence(worst: _SlowedDevice, others: list[_SlowedDevice]) -> list[Evidence]:
    device = worst.device
    return [
        *fact(lambda v: f"{percent(v)} of its clock while throttled", device.throttled_clock),
        *_reason("heat", device.thermal_share),
        *_reason("its board", device.hardware_share),
        *_reason("its power cap", device.power_limited_share),
        *fact(lambda v: f"up to {v:.0f} degrees Celsius", device.temperature_celsius),
        *fact(
            lambda v: f"its power cap is {percent(v)} of the factory setting",
            device.power_cap_share,
        ),
        *busy_evidence(device),
        *(Evidence(what=f"{who(other.device)} {_WORDS[other.reason]} too") for other in others[:3]),
    ]


def _reason(what: str, share: Signal) -> list[Evidence]:
    if (value_of(share) or 0.0) < LISTED_SHARE:
        return []
    return fact(lambda v: f"throttled by {what} {percent(v)} of the time", share)
