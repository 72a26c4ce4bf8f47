"""SY621 slow-worker: one worker takes longer than the replicas of its stage for the same work.

What: the steps of a pipeline are replayed with that worker as fast as its replicas; the time this
saves is what the worker costs. All others wait for it, directly or behind those who do.
Threshold: it must recover a third of what is lost to unevenness, and 5 % of a step.
Known problem: without replicas (data parallelism of 1) a slow worker looks like a slow stage.
Fix: look at that host: clocks, errors, neighbours; then take it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.stragglers import describe_gain, describe_replay, find_effect
from fuelline.diagnose.rule import found
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.units import percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding


class SlowWorker:
    """Sync x imbalance, from a replayed pipeline."""

    code: Final = "SY621"
    name: Final = "slow-worker"
    stage: Final = "sync"
    limit: Final = "imbalance"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if one worker explains the loss."""
        hit = find_effect(facts, "slow worker")
        if hit is None or facts.stragglers is None or not hit[0].ranks:
            return None
        effect, lost = hit
        ranks = " and ".join(map(str, effect.ranks))
        is_one = len(effect.ranks) == 1
        who = f"rank {ranks}" if is_one else f"ranks {ranks}"
        ratio = f"{effect.ratio:.1f}x as long as" if effect.ratio else "longer than"
        return found(
            self,
            facts,
            lost,
            sentence=f"Slow worker: {who} {'takes' if is_one else 'take'} {ratio} the replicas of "
            f"the same stage; the others wait {percent(lost)} of the time for that.",
            evidence=[
                describe_gain(f"{who} as fast as the replicas", effect),
                *describe_replay(facts.stragglers),
            ],
            remedies=[
                Remedy(
                    setting=f"check the host of {who}: clocks, throttling, ECC, neighbours",
                    why="its replicas do the same work and are not slow",
                    applicability="display",
                    at_most_speedup=1 / (1 - lost),
                )
            ],
        )
