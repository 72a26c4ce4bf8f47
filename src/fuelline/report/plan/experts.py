"""Words for a mixture of experts: what a batch touches, what it sends, who has most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.report.document import Item
from fuelline.schema.units import duration, percent, short, size

if TYPE_CHECKING:
    from fuelline.schema.plan.answers import ExpertLoad


def write_experts(load: ExpertLoad, batch: str = "step") -> Item:
    """`batch`: what the tokens are of."""
    sent = (
        f"all-to-all of {size(load.all_to_all_bytes)}, {duration(load.all_to_all_s)} of a step"
        if load.all_to_all_bytes
        else "no all-to-all: every token is on the chips of its experts already"
    )
    fullest = (
        f"the fullest chip has {percent(load.imbalance_frac)} more tokens than the mean: "
        f"{duration(load.imbalance_s)} of a step"
        if load.imbalance_frac
        else "no chip is fuller than another: each has its part of every expert"
    )
    many = "s" if load.tokens >= 1.5 else ""
    each = short(load.tokens_per_expert)
    return Item(
        f"experts: {load.tokens:,.0f} token{many} a {batch} touch{'' if many else 'es'} "
        f"{percent(load.touched_share)} of a layer's experts, {each} "
        f"token{'' if each == '1' else 's'} each",
        (sent, fullest),
    )
