"""PR204 loop-transform: the training process itself prepares each batch that the loader returns.

What: stack samples of the training thread are in the user's own code between the batch's arrival
and the call of the model: tokenising, augmenting, padding, converting.
Why: one thread does this work, in turn with launching the model. Loader workers would do it in
parallel and ahead of time. It is like having 0 workers, only after the loader.
Not the same as: the forward pass, which has frames of `torch.nn.Module` (the hooks cannot separate
the two); code after the model (PA506), which stands on later lines.
Known problem: lines that compute with tensors outside of a module, and sleeping, are taken for the
model. A device that holds the host up in backward hides all of it.
Fix: move it into `__getitem__` or `collate_fn`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.tf_data import is_tf_data
from fuelline.diagnose.rule import LISTED_SHARE, found, line_fact
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.units import duration, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts, HotLine
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
        code = _name(lines[0])
        return found(
            self,
            facts,
            share,
            sentence=f"The training process itself spends {percent(share)} of the time in "
            f"{code}, between getting a batch and calling the model; no new work is launched "
            "meanwhile.",
            evidence=[
                Evidence(
                    what=f"{duration(share * facts.window.seconds)} before the model is called"
                ),
                *line_fact(lines, "stack samples of your own code inside steps"),
            ],
            remedies=[
                Remedy(
                    setting=f"move {code} into dataset.map with num_parallel_calls"
                    if is_tf_data(facts.loader)
                    else f"move {code} into __getitem__ or collate_fn, with num_workers > 0",
                    why="the input pipeline then does it in parallel and ahead of time"
                    if is_tf_data(facts.loader)
                    else "loader workers then do it in parallel and ahead of time",
                    applicability="display",
                    risk="the loader then delivers what it returns, so the loop must expect that",
                )
            ],
            confidence="medium",
        )


def _name(line: HotLine) -> str:
    """`tokenise()`; a line by its place where its function is the training loop itself."""
    if line.in_loop or line.function == "<module>":
        return f"your own code at {line.line}"
    return f"{line.function}()"
