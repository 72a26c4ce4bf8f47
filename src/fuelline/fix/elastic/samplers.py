"""Whether more indices may be drawn ahead from a sampler than the job's own loader would draw.

A sampler that draws from a random stream which the training shares, or that looks at how the
training goes, gives other indices when it is asked earlier. Only samplers of torch that draw from a
generator of their own, or all at once when they are started, may be asked ahead; others keep the
number of batches under way that they have without us.
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import dataloader, distributed, sampler

__all__ = ["may_run_ahead"]

_AT_ONCE = (
    sampler.SequentialSampler,
    dataloader._InfiniteConstantSampler,
    sampler.WeightedRandomSampler,
    distributed.DistributedSampler,
)
"""Their order is fixed before the first index is given out."""


def may_run_ahead(index_sampler: Any) -> bool:
    """Whether drawing early gives the same indices and disturbs nobody."""
    kind = type(index_sampler)
    if kind is sampler.BatchSampler:
        return may_run_ahead(index_sampler.sampler)
    if kind in {sampler.RandomSampler, sampler.SubsetRandomSampler}:
        return _is_own_stream(index_sampler)
    return kind in _AT_ONCE


def _is_own_stream(random_sampler: Any) -> bool:
    """A permutation is drawn at the first index; further ones later, from the stream it has."""
    if random_sampler.generator is None and type(random_sampler) is sampler.RandomSampler:
        return True  # it seeds a generator of its own when it starts
    if type(random_sampler) is sampler.SubsetRandomSampler:
        return True
    wanted = random_sampler.num_samples
    return not random_sampler.replacement and wanted <= len(random_sampler.data_source)
