"""PR204 loop-transform: the training process itself prepares each batch, after the loader gave it.

What: stack samples of the training thread lie in the user's own code between the batch's arrival
and the call of the model: tokenising, augmenting, padding, converting.
Why: what is done there is done by one thread, in turn with launching the model. Loader workers
would do it side by side, ahead of time. It is what 0 workers are, after the loader.
Told apart from: the forward pass by its frames (`torch.nn.Module`), which the hooks cannot do; from
code after the model (PA506) by the order of the lines.
Known problem: lines that compute with tensors outside of a module, and sleeping, are taken for the
model. A device that holds the host up in backward hides all of it.
Fix: move it into `__getitem__` or `collate_fn`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.rule import LISTED_SHARE, found, line_fact
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class LoopTransform:
    """Transform x parallelism, in the loop itself."""

    code: Final = "PR204"
    name: Final = "loop-transform"
    stage: Final = "transform"
    limit: Final = "parallelism"

    def check(self, facts: Facts) -> Finding | None:
        """Fires on the time before the model is called that is spent in the loop's own code."""
        lines = [line for line in facts.step_lines if line.stage == "transform"]
        share = facts.exposed_share_of("own code") * sum(line.share for line in lines)
        if share < LISTED_SHARE:
            return None
        function = f"{lines[0].function}()" if lines[0].function != "<module>" else "own code"
        return found(
            self,
            facts,
            share,
            sentence=f"{percent(share)} of the time the training process itself is in {function}, "
            "between a batch and the model; the accelerator gets nothing new meanwhile.",
            evidence=[
                Evidence(what=f"{duration(share * facts.window.seconds)} before the model's call"),
                *line_fact(lines, "the samples of own code within steps"),
            ],
            remedies=[
                Remedy(
                    setting=f"move {function} into __getitem__ or collate_fn, with num_workers > 0",
                    why="loader workers then do it side by side and ahead of time",
                    applicability="display",
                    risk="what it returns must be what the loader hands over",
                )
            ],
            confidence="medium",
        )
