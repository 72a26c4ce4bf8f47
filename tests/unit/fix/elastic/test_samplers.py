"""Which samplers may be asked ahead."""

import torch
from bench.elastic_case import Halving
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from fuelline.fix.elastic.registry import may_run_ahead

ROWS = list(range(8))


def test_samplers_of_torch_whose_order_is_fixed_at_the_start_may() -> None:
    for sampler in (
        SequentialSampler(ROWS),
        RandomSampler(ROWS),
        RandomSampler(ROWS, generator=torch.Generator()),
        SubsetRandomSampler(ROWS),
        WeightedRandomSampler([1.0] * 8, 8),
        DistributedSampler(ROWS, num_replicas=2, rank=0),  # type: ignore[arg-type]
        BatchSampler(SequentialSampler(ROWS), 2, drop_last=False),
    ):
        assert may_run_ahead(sampler), sampler


def test_a_sampler_that_draws_as_it_goes_may_not() -> None:
    class OwnCatalogue(SequentialSampler):
        pass

    for sampler in (
        Halving(8),
        OwnCatalogue(ROWS),
        BatchSampler(Halving(8), 2, drop_last=False),
        RandomSampler(ROWS, replacement=True, num_samples=90, generator=torch.Generator()),
        [[0, 1], [2, 3]],
    ):
        assert not may_run_ahead(sampler), sampler
