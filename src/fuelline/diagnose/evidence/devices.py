"""How rules name an accelerator, and which readings they show of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.diagnose.rule import fact
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.devices import DeviceFacts
    from fuelline.schema.diagnosis.findings import Evidence


def who(device: DeviceFacts) -> str:
    """`gpu3 (NVIDIA H100 80GB HBM3, pid 4711)`."""
    return f"{device.device} ({', '.join([device.name, *pid_words(device)])})"


def pid_words(device: DeviceFacts) -> list[str]:
    """`pid 4711`, or `pids 4711, 4712`; nothing if they cannot be seen."""
    pids = ", ".join(map(str, device.pids))
    return [f"{'pids' if len(device.pids) > 1 else 'pid'} {pids}"] if pids else []


def wait_words(devices: list[DeviceFacts]) -> str:
    """Ranks that train together are as fast as the slowest."""
    return ", and the devices that train with it wait" if len(devices) > 1 else ""


def busy_evidence(device: DeviceFacts) -> list[Evidence]:
    """How busy the device said it was, and at which clock."""
    return [
        *fact(lambda v: f"{device.device} reports {percent(v)} utilisation", device.utilisation),
        *fact(lambda v: f"its clock is at {percent(v)} of its maximum", device.clock_share),
    ]
