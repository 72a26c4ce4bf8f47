"""Libraries in the workers that start a thread for each core: more threads than cores.

Torch's own threads are limited to one a worker already. Not applied: a library's count of threads
is read when it is loaded, and sums may round differently with another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.findings import Remedy
from fuelline.schema.readings import value_of

if TYPE_CHECKING:
    from fuelline.schema.facts import Facts

MUCH = 0.25
"""Of fetching, ready to run without a core: as in fix.governor."""


def propose(facts: Facts) -> Remedy | None:
    """Fires where workers wait for cores though there are no more of them than cores."""
    loader = facts.loader
    queued, cores = value_of(facts.input.core_wait_share), value_of(facts.cores.allowed)
    if loader is None or queued is None or cores is None or queued < MUCH:
        return None
    if not loader.num_workers or loader.num_workers > cores:
        return None
    return Remedy(
        setting="OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1, and cv2.setNumThreads(0) in "
        "worker_init_fn",
        why=f"{loader.num_workers} workers on {cores:g} cores wait {round(100 * queued)} % of "
        "their time for one: libraries in them may start threads of their own",
        applicability="unsafe",
        risk="sums over threads may round differently",
    )
