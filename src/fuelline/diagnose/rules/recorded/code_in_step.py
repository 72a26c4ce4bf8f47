"""PA506 code-in-step: the training loop's own code stands between the model and backward.

What: stack samples of the training thread lie in the user's own code after the model was called and
before its backward pass, or at a place in the step that cannot be told: metrics, logging, plots.
Why: the host launches nothing meanwhile, and the device runs out of work.
Told apart from: the forward pass by its frames (`torch.nn.Module`), which the hooks cannot do; from
code before the model (PR204) by the order of the lines; from code between steps (PA503) by the
hooks' clock.
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
            sentence=f"{percent(share)} of the time the loop's own code runs within steps, most of "
            f"it {top.function}() at {top.line}; the accelerator gets nothing new meanwhile.",
            evidence=[
                Evidence(what=f"{duration(share * facts.window.seconds)} beside the model"),
                *line_fact(lines, "the samples of own code within steps"),
            ],
            remedies=[
                Remedy(
                    setting="do it every 100 steps instead of every step, or in another thread",
                    why="the host launches nothing while it does this",
                    applicability="display",
                )
            ],
            confidence="medium",
        )
