"""PA503 loop-pause: the training loop runs code of its own between steps.

What: time after an optimizer step and before the next batch is requested, apart from saving,
validation and synchronisation with the device: logging, metrics, printing, file writes, sleeping.
Measured by: the hooks' clock; the line comes from stack samples of the training thread. Samples
that show the thread waiting for the device (synchronize, .item()) are taken off: that is compute.
Fix: do it less often, or in another thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.rule import LISTED_SHARE, found, line_fact
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts, HotLine
    from fuelline.schema.diagnosis.findings import Finding


class LoopPause:
    """Pause x code, in the loop itself."""

    code: Final = "PA503"
    name: Final = "loop-pause"
    stage: Final = "pause"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires on the time between steps that is not spent waiting for the device."""
        lines = [line for line in facts.loop_lines if line.stage == "loop"]
        share = facts.exposed_share_of("loop")
        if share < LISTED_SHARE:
            return None
        seconds = share * facts.window.seconds
        return found(
            self,
            facts,
            share,
            sentence=f"{percent(share)} of the time {_what(lines)}.",
            evidence=[
                Evidence(what=f"{duration(seconds)} between an optimizer step and the next batch"),
                *line_fact(lines, "stack samples taken between steps"),
            ],
            confidence="high" if lines else "low",
            remedies=[
                Remedy(
                    setting="run this code every 100 steps instead of every step, or in another "
                    "thread",
                    why="the host launches no work while it runs",
                    applicability="display",
                    question=WhatIf(rarer={"loop": 100.0}),
                )
            ],
        )


def _what(lines: list[HotLine]) -> str:
    """Without a stack the time may just as well be a wait for the device: then claim neither."""
    if not lines:
        return "passes between steps, in the training loop"
    return (
        "goes to the training loop's own code between steps, mostly "
        f"{lines[0].function}() at {lines[0].line}"
    )
