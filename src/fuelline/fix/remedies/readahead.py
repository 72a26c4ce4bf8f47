"""Large files read in small pieces from a disk that answers each piece alone.

Not applied: the kernel's read-ahead belongs to the device and to everybody who uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.readings import at_least, value_of

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts

MUCH = 0.3
"""Of fetching, blocked in reads."""
SMALL_BYTES = 128 * 1024
"""The kernel's default read-ahead: pieces below it are what a longer one would join."""

WAITS = 0.03
"""Of the window, waiting for input: even without it a job gains no more than that."""


def propose(facts: Facts) -> Remedy | None:
    """Fires where fetches are blocked in small reads of a block device."""
    blocked, piece = value_of(facts.input.read_share), value_of(facts.storage.bytes_per_call)
    place = facts.input.place
    if blocked is None or piece is None or place is None or not place.device.startswith("/dev/"):
        return None
    if blocked < MUCH or piece >= SMALL_BYTES or not at_least(facts.input.exposed_share, WAITS):
        return None
    return Remedy(
        setting=f"blockdev --setra 4096 {place.device}",
        why=f"fetches spend {round(100 * blocked)} % of the time blocked in reads of "
        f"{round(piece / 1024)} KiB",
        applicability="display",
        risk="helps only files that are read in order; random reads then read more than they need",
    )
