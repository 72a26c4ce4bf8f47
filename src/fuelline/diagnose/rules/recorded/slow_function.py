"""PR203 slow-function: one function of the user's own code keeps all cores busy.

What: while training waits, the fetching threads fill every core, nobody takes cores from them, and
at least half of their stack samples are in one function of the user's own Python code.
Why it is not PR202: the machine gives all it has; the code asks for too much.
Threshold: one half, because removing a smaller function could not double the throughput.
Fix: vectorise the function, cache its result, or move it to the accelerator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.cpu import (
    cores_are_short,
    cores_are_taken,
    cpu_evidence,
    one_function,
)
from fuelline.diagnose.evidence.split import split_input
from fuelline.diagnose.rule import LISTED_SHARE, found
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class SlowFunction:
    """Transform x code."""

    code: Final = "PR203"
    name: Final = "slow-function"
    stage: Final = "transform"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when preparing dominates the wait, cores are full, and one function fills them."""
        split = split_input(facts)
        if split is None or split.prepare < LISTED_SHARE:
            return None
        line = one_function(facts)
        if line is None or not cores_are_short(facts) or cores_are_taken(facts):
            return None
        return found(
            self,
            facts,
            split.prepare,
            sentence=f"{percent(split.prepare)} of training time is spent waiting for "
            f"{line.function}() in your own code, which keeps every core busy.",
            evidence=cpu_evidence(facts),
            remedies=[
                Remedy(
                    setting=f"speed up {line.function} at {line.line}: vectorise it, or cache "
                    "its result",
                    why="it fills every core already, so more workers would only queue; the gain "
                    "shown is for half the time",
                    applicability="display",
                    cost="work on that function",
                    question=WhatIf(transform_factor=2.0),
                )
            ],
        )
