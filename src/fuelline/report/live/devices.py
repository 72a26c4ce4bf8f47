"""The accelerators, as many to a line as fit: reported utilisation, what is behind it, power."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.live.columns import UNKNOWN
from fuelline.schema.units import percent, size

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.live import DeviceRow

_CELL_WIDTH = 39
_NOTABLE = 0.05
"""Share of time from which being slowed down is said."""


def device_lines(devices: list[DeviceRow], width: int) -> list[str]:
    """`gpu0  97 %  sm 34 %  410 W  61 GB`, side by side."""
    in_a_line = max(1, (width + 1) // (_CELL_WIDTH + 1))
    cells = [f"{_cell(device):<{_CELL_WIDTH}}" for device in devices]
    return [" ".join(cells[at : at + in_a_line]).rstrip() for at in range(0, len(cells), in_a_line)]


def _cell(device: DeviceRow) -> str:
    if device.is_lost:
        return f"{device.device}  lost by the driver"
    told = [f"{device.device:<5} {_percent(device.reported_frac):>5}"]
    if device.sm_frac is not None:
        told.append(f"sm {_percent(device.sm_frac)}")
    if device.watts is not None:
        told.append(f"{device.watts:.0f} W")
    if device.memory_bytes is not None:
        told.append(size(device.memory_bytes))
    if device.throttled_frac is not None and device.throttled_frac >= _NOTABLE:
        told.append("slowed")
    return "  ".join(told)[:_CELL_WIDTH]


def _percent(frac: float | None) -> str:
    return UNKNOWN if frac is None else percent(frac)
