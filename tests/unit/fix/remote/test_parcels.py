"""A batch packed and opened is the same to the bit; so is its fingerprint, and no other's."""

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch

from fuelline.fix.elastic import channel
from fuelline.fix.remote.parcels import find_fingerprint, pack, pack_small

Pair = namedtuple("Pair", "row label")  # noqa: PYI024 - as users write it
BATCHES = [
    torch.arange(5000.0),
    torch.arange(12.0).reshape(3, 4).T,
    {"row": torch.ones(3, dtype=torch.bfloat16), "text": ["a", "b"], "n": 3},
    Pair(torch.zeros(2000, 2)[::2], np.float64(0.5)),
    (np.arange(9000).reshape(3, 3000), None, b"x", torch.empty(0, 3)),
    torch.eye(300).to_sparse(),
    torch.nn.Parameter(torch.ones(2000)),
]


def send(batch: Any) -> Any:
    """What a trainer opens of it: bodies and parts as they come out of shared memory."""
    body, parts = pack(batch)
    channel._loading.parts = [memoryview(bytearray(part)) for part in parts]
    return channel.ForkingPickler.loads(body)


@pytest.mark.filterwarnings("ignore:Sparse invariant")
@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: type(batch).__name__)
def test_a_batch_arrives_as_it_was(batch: Any) -> None:
    assert find_fingerprint(send(batch)) == find_fingerprint(batch)


def test_large_storages_are_parts_and_small_ones_are_not() -> None:
    shared = torch.arange(4096.0)
    _, parts = pack([shared, shared[:10], torch.ones(3)])
    assert [part.nbytes for part in parts] == [4 * 4096]


def test_two_views_of_one_storage_still_share_it() -> None:
    whole = torch.arange(4096.0)
    left, right = send([whole, whole[1:]])
    left[1] = -1
    assert right[0] == -1


def test_indices_need_no_shared_memory() -> None:
    content = pack_small((3, [torch.tensor(5), 7]))
    number, index = channel.ForkingPickler.loads(content)
    assert (number, int(index[0]), index[1]) == (3, 5, 7)


@pytest.mark.parametrize(
    "other",
    [
        torch.arange(5000.0).double(),
        torch.arange(5000.0).reshape(2, 2500),
        torch.arange(5000.0).nextafter(torch.full((5000,), 9e9)),
        [torch.arange(5000.0)],
    ],
)
def test_what_differs_in_a_bit_has_another_fingerprint(other: Any) -> None:
    assert find_fingerprint(other) != find_fingerprint(BATCHES[0])
