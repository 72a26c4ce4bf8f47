"""TR301 slow-copies: training stops while batches are copied to the device.

What: copies from the host to the device take part of the window, because the memory they start
from can be paged out, or because the call waits for the copy to end.
Measured by: hooks on the copying methods, which see whether the source was pinned and whether the
call was non-blocking. A copy from pageable memory goes through a buffer of the driver at a third to
a half of the link's rate, and the host waits for it even if the call was non-blocking.
By its own clock the accelerator may spend its time in copies that nobody waits for: they stand in
the queue of its kernels, and a stream of their own would take them out of it.
Thresholds: a loss of 5 % to be listed; most of the copying time must lack what is proposed.
Fix: `pin_memory=True` in the loader and `non_blocking=True` at the copy: one without the other does
not help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuelline.diagnose.rule import LISTED_SHARE, fact, found
from fuelline.schema.diagnosis.findings import Evidence, Remedy
from fuelline.schema.readings import at_least
from fuelline.schema.units import percent, rate

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.diagnosis.findings import Finding

_MOST = 0.5


class SlowCopies:
    """Transfer x code."""

    code: Final = "TR301"
    name: Final = "slow-copies"
    stage: Final = "transfer"
    limit: Final = "code"

    def check(self, facts: Facts) -> Finding | None:
        """Fires on time in copies that pinning or not waiting would take away."""
        share = facts.exposed_share_of("transfer")
        is_pageable = at_least(facts.transfer.pageable_share, _MOST)
        is_blocking = at_least(facts.transfer.blocking_share, _MOST)
        if not (is_pageable or is_blocking):
            return self._check_queue(facts)
        if share < LISTED_SHARE:
            return None
        how = (
            "from memory that is not pinned"
            if is_pageable
            else "and each call waits until the copy is done"
        )
        return found(
            self,
            facts,
            share,
            sentence=f"{percent(share)} of the time goes to copying batches to the device, {how}.",
            evidence=_evidence(facts, share),
            remedies=[_remedy(facts, is_pageable=is_pageable)],
        )

    def _check_queue(self, facts: Facts) -> Finding | None:
        """Of copies that the host does not wait for: those between the device's own kernels."""
        budget = facts.device_budget
        share = 0.0 if budget is None else budget.share_of("copies")
        if share < LISTED_SHARE:
            return None
        return found(
            self,
            facts,
            share,
            sentence=f"{percent(share)} of the accelerator's time goes to copying batches to it, "
            "while it computes nothing.",
            evidence=fact(lambda v: f"copies run at {rate(v)}", facts.transfer.bytes_per_s),
            remedies=[
                Remedy(
                    setting="copy the next batch on a stream of its own (torch.cuda.Stream), and "
                    "send smaller types: uint8 images, converted on the device",
                    why="the copy then runs beside the kernels of the batch before",
                    applicability="display",
                )
            ],
        )


def _evidence(facts: Facts, share: float) -> list[Evidence]:
    transfer = facts.transfer
    return [
        Evidence(what=f"{percent(share)} of the time is spent in .to(device) and the like"),
        *fact(lambda v: f"copies run at {rate(v)}", transfer.bytes_per_s),
        *fact(lambda v: f"{percent(v)} of that is from pageable memory", transfer.pageable_share),
        *fact(lambda v: f"{percent(v)} of it is in calls that wait", transfer.blocking_share),
    ]


def _remedy(facts: Facts, *, is_pageable: bool) -> Remedy:
    pins = facts.loader is not None and facts.loader.pin_memory
    settings = [
        *(["pin_memory=True in the DataLoader"] if is_pageable and not pins else []),
        "batch.to(device, non_blocking=True)",
    ]
    return Remedy(
        setting=" and ".join(settings),
        why="the copy then runs while the host goes on and the device computes",
        applicability="safe",
        risk="pinned memory cannot be paged out; it takes a few batches' worth of RAM",
    )
