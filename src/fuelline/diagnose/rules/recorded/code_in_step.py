"""PA506 code-in-step: the training loop runs code of its own between the model and backward.

What: stack samples of the training thread are in the user's own code after the model was called
and before its backward pass, or at an unknown point in the step: metrics, logging, plots.
Why: the host launches nothing meanwhile, and the device runs out of work.
Not the same as: the forward pass, which has frames of `torch.nn.Module` (the hooks cannot separate
the two); code before the model (PR204), which stands on earlier lines; code between steps (PA503),
which the hooks time.
Known problem: lines that compute with tensors outside of a module, and sleeping, are taken for the
model. A device that holds the host up in backward hides all of it.
Fix: do it less often, or after the step in another thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.rule import LISTED_SHARE, found, line_fact
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class CodeInStep:
    """Pause x code, within the step."""

    code: Final = "PA506"
    name: Final = "code-in-step"
    stage: Final = "pause"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires on the time of own code within steps that does not prepare the batch."""
        lines = [line for line in facts.step_lines if line.stage == "loop"]
        share = facts.exposed_share_of("own code") * sum(line.share for line in lines)
        if share < LISTED_SHARE:
            return None
        top = lines[0]
        return found(
            self,
            facts,
            share,
            sentence=f"{percent(share)} of the time goes to the loop's own code inside steps, "
            f"mostly {top.function}() at {top.line}; no new work is launched meanwhile.",
            evidence=[
                Evidence(what=f"{duration(share * facts.window.seconds)} outside the model"),
                *line_fact(lines, "stack samples of your own code inside steps"),
            ],
            remedies=[
                Remedy(
                    setting="run this code every 100 steps instead of every step, or in another "
                    "thread",
                    why="the host launches no work while it runs",
                    applicability="display",
                )
            ],
            confidence="medium",
        )
