"""Libraries in the workers that start a thread for each core: more threads than cores.

Torch's own threads are limited to one per worker already. Not applied: a library reads its number
of threads when it is loaded, and sums may round differently with another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.readings import at_least, value_of

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts

MUCH = 0.25
"""Of fetching, ready to run without a core: as in fix.governor."""
OTHERS = 0.25
"""Of the cores, busy with processes outside the job: then those are the reason."""

WAITS = 0.03
"""Of the window, waiting for input: even without it a job gains no more than that."""


def propose(facts: Facts) -> Remedy | None:
    """Fires where workers wait for cores that neither they nor other processes can fill."""
    loader = facts.loader
    queued, cores = value_of(facts.input.core_wait_share), value_of(facts.cores.allowed)
    if loader is None or queued is None or cores is None or queued < MUCH:
        return None
    if not loader.num_workers or loader.num_workers * facts.cores.ranks > cores:
        return None
    if (value_of(facts.cores.others) or 0.0) > OTHERS * cores:
        return None
    if not at_least(facts.input.exposed_share, WAITS):
        return None
    workers = "one worker" if loader.num_workers == 1 else f"{loader.num_workers} workers"
    waits = "waits" if loader.num_workers == 1 else "wait"
    return Remedy(
        setting="OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1, and cv2.setNumThreads(0) in "
        "worker_init_fn",
        why=f"{workers} on {cores:g} cores {waits} for a core {round(100 * queued)} % of the "
        "time: libraries may start threads of their own there",
        applicability="unsafe",
        risk="sums over threads may round differently",
    )
