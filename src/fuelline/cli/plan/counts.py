"""Flags that count things hold whole numbers: a half chip is refused, never cut off."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.cli.plan.options import LIMITS
from fuelline.cli.quantities import parse_amount, parse_values
from fuelline.schema.errors import UsageError

if TYPE_CHECKING:
    import argparse

COUNTS = (
    "batch", "in", "out", "tp", "pp", "ep", "cp", "chips", "seq", "microbatch", "interleave",
    "sites",
)  # fmt: skip


def check_counts(options: argparse.Namespace) -> None:
    """Refuse a fraction with the whole numbers beside it."""
    for name in COUNTS:
        text = getattr(options, name, None)
        if text is None or name not in LIMITS:
            continue
        low, high = LIMITS[name]
        ends = text.split("..")
        values = (
            parse_values(text, f"--{name}", low, high)
            if len(ends) == 1
            else tuple(parse_amount(end, f"--{name}", low, high) for end in ends if end)
        )
        for value in values:
            if value != int(value):
                below, above = max(math.floor(value), int(low)), math.ceil(value)
                raise UsageError(
                    f"--{name} is {value:g}; it must be a whole number between {low:,.0f} and "
                    f"{high:,.0f}. Give --{name} {below} or --{name} {above}."
                )
