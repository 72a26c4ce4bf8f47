"""How much faster another chip of the catalogue is than the one in the recording.

A job that is limited by math gains with the peak rate, one that is limited by memory with the
bandwidth. A recording from the host does not show which, so the answer lies between the two ratios.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fuelline.schema.plan.chips import find_chip, find_peak_bytes, find_peak_flops
from fuelline.schema.readings import Missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.diagnosis.devices import DeviceFacts


@dataclass(frozen=True)
class Ratio:
    """Of two chips: the middle of both ratios, and how far they are from it."""

    factor: float
    error: float
    """Standard error of the factor's logarithm: both ratios are two of them from the middle."""
    words: str


def compare_chips(name: str, devices: Sequence[DeviceFacts]) -> Ratio | Missing:
    """The named chip against the recorded one, or why that is not known."""
    recorded = {device.name for device in devices if "." not in device.device}
    if len(recorded) != 1:
        seen = f"has {len(recorded)} kinds of them" if recorded else "shows no whole accelerator"
        return Missing(
            reason=f"a ratio to {name} needs the chip that was recorded, and the recording {seen}. "
            "Ask with a factor instead: --chip 3x"
        )
    (now,) = recorded
    chip = find_chip(name)
    rates = (
        (chip.peak_flops("bf16"), find_peak_flops(now)),
        (
            chip.mem_bytes_per_s,
            find_peak_bytes(now),
        ),
    )
    ratios = [new / old for new, old in rates if new and old]
    if len(ratios) != len(rates):
        return Missing(
            reason=f"the catalogue lacks the peak rate or the memory bandwidth of {now} or "
            f"{chip.name}. Ask with a factor instead: --chip 3x"
        )
    math_ratio, memory_ratio = ratios
    return Ratio(
        factor=math.sqrt(math_ratio * memory_ratio),
        error=abs(math.log(math_ratio / memory_ratio)) / 4,
        words=f"{chip.name} does {math_ratio:.2g} times the math and {memory_ratio:.2g} times the "
        f"memory traffic of {now}; the step is somewhere between",
    )
