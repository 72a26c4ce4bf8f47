"""An optimizer that updates the weights tensor by tensor, operator by operator.

Not applied: the fused kernel rounds differently in the last bits, and is chosen when the optimizer
is made.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.findings import Remedy

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts

MUCH = 0.2
"""Of the window, in the optimizer's step: half of it saves a tenth."""
_UNFUSED = re.compile(r"^_(single|multi)_tensor_(adamw?|sgd|adagrad)$")
"""Torch's ways of updating the weights, of those optimizers that have a fused one as well."""


def propose(facts: Facts) -> Remedy | None:
    """Fires where much of the time goes to the step of an optimizer that could be fused."""
    share = facts.exposed_share_of("optimizer")
    if share < MUCH or not _UNFUSED.match(facts.compute.optimizer_kernel):
        return None
    return Remedy(
        setting="fused=True for the optimizer",
        why=f"its step takes {round(100 * share)} % of the time, in several passes over the "
        "weights; the fused kernel makes one. Adam took half the time on our CPU",
        applicability="unsafe",
        risk="weights differ in the last bits",
        at_most_speedup=1 / (1 - min(share, 0.99)),
    )
