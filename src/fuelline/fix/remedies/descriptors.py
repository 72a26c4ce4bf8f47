"""Batches that travel by file descriptor need one each, and a loader with many can run out.

Under --fix the soft limit is raised towards the hard one when it comes near (a process may raise
its own). Shown when batches have so many parts that even that may not be enough: torch's other
sharing strategy, by file name, needs no descriptors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.findings import Remedy

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts

MANY = 256
"""Batches under way: with some tensors each they come near the usual limit of 1,024."""


def propose(facts: Facts) -> Remedy | None:
    """Fires for a loader with very many batches under way."""
    loader = facts.loader
    if loader is None or not loader.num_workers:
        return None
    under_way = loader.num_workers * (loader.prefetch_factor or 2)
    if under_way < MANY:
        return None
    return Remedy(
        setting="torch.multiprocessing.set_sharing_strategy('file_system')",
        why=f"{under_way} batches are under way, each with a descriptor for every tensor",
        applicability="unsafe",
        risk="files in /dev/shm stay behind if the job is killed",
        cost="none; raising `ulimit -n` by hand works as well",
    )
