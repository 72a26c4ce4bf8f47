"""The precision that a model is published in, on a chip that has a unit for it.

Weights that are only stored in few bits run everywhere: they are unpacked on the way. Where a chip
lacks the unit, half precision is taken, and that is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from fuelline.schema.plan.precision import Precision, parse_precision

if TYPE_CHECKING:
    from fuelline.schema.plan.chips import Chip
    from fuelline.schema.plan.models import Model

_EVERYWHERE = ("bf16", "fp32")


def runs_on(model: Model, chip: Chip, precision: Precision) -> bool:
    """Whether nothing has to be converted first."""
    unpacked = precision.weight_only or bool(model.expert_bits)
    return unpacked or precision.math in _EVERYWHERE or chip.peak_flops(precision.math) is not None


def precision_on(model: Model, chip: Chip, published: Precision) -> Precision:
    """As published where the chip can, else half precision."""
    if runs_on(model, chip, published):
        return published
    return replace(parse_precision("bf16"), kv_bits=published.kv_bits)


def say_native(model: Model, chip: Chip, published: Precision) -> str:
    """What stands behind the precision in a title."""
    if runs_on(model, chip, published):
        return "as published"
    return f"published in {published.name}, for which {chip.name} has no unit"
