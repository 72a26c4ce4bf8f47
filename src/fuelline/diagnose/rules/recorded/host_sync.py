"""CP404 host-sync: in every step the host waits for the device, and then the device for the host.

What: `.item()`, `.cpu()`, a printed tensor or `synchronize()` in each step empties the device's
queue. The device then has nothing to do until the host has queued the next kernels.
Costs: the device's idle time that input, pauses and copies do not account for. Waiting for a value
costs nothing by itself while the device works: a job with such reads and a busy device is healthy.
Not the same as: a read of the framework's own, such as a gradient scaler's in every step, which the
job cannot leave out: those are not counted.
Thresholds: at least nine steps in ten synchronise; a loss of 5 % to be listed.
Known problem: the driver counts a period in which any kernel ran as busy, so the loss is
understated rather than overstated. Without an accelerator's counters the rule is silent.
Fix: read the loss every hundredth step, keep sums on the device, compare without `.item()`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.evidence.devices import busy_evidence
from fuelline.diagnose.rule import LISTED_SHARE, fact, found
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.readings import at_least, value_of
from fuelline.schema.units import number, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding
    from fuelline.schema.parts import StepPart

_EVERY_STEP = 0.9
_OTHER_CAUSES: tuple[StepPart, ...] = (
    "epoch start",
    "transfer",
    "loop",
    "collectives",
    "validation",
    "checkpoint",
    "garbage collection",
    "profiler",
    "unexplained",
)


class HostSync:
    """Compute x launch, by synchronising."""

    code: Final = "CP404"
    name: Final = "host-sync"
    stage: Final = "compute"
    limit: Final = "launch"

    def check(self, facts: Facts) -> Finding | None:
        """Fires if the device idles within steps that synchronise."""
        lost = _idle_within_steps(facts)
        syncs = facts.transfer.syncs_per_step
        if lost is None or lost < LISTED_SHARE or not at_least(syncs, _EVERY_STEP):
            return None
        if (value_of(facts.compute.paced_share) or 1.0) < LISTED_SHARE:
            return None  # by its own clock the device has work queued all the time
        return found(
            self,
            facts,
            lost,
            sentence=f"The accelerator has nothing queued for {percent(lost)} of the time, because "
            "in every step the host reads a value back before it queues more work.",
            evidence=_evidence(facts),
            remedies=[
                Remedy(
                    setting="read the loss every 100 steps; keep a running sum on the device",
                    why="the host then runs ahead and the device always has work queued",
                    applicability="display",
                )
            ],
            confidence="medium",
        )


def _idle_within_steps(facts: Facts) -> float | None:
    """Share of the window that the busiest device idles and nothing else accounts for."""
    reported = (value_of(device.utilisation) for device in facts.devices)
    busy = [value for value in reported if value is not None]
    waiting = value_of(facts.input.exposed_share)
    if not busy or waiting is None:
        return None
    other = waiting + sum(facts.exposed_share_of(part) for part in _OTHER_CAUSES)
    return 1 - max(busy) - other


def _evidence(facts: Facts) -> list[Evidence]:
    lines = [line for line in facts.loop_lines if line.stage == "sync"]
    return [
        *fact(lambda v: f"{number(v)} synchronisations per step", facts.transfer.syncs_per_step),
        *[
            Evidence(what=f"the host waits in {line.function}", line=line.line, source=line.source)
            for line in lines[:1]
        ],
        *[evidence for device in facts.devices for evidence in busy_evidence(device)],
    ]
