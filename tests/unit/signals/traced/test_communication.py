"""Communication that no list of names has: by behaviour, and how much of it is hidden."""

from __future__ import annotations

import random

import pytest

from fuelline.signals.traced import measure_trace
from tests.unit.signals.traced.planted import Rank, build

_APART = 31
"""The stream of what does not compute."""


def beside(name: str, lengths_us: list[float], *, stream: int = _APART, blocks: int = 24) -> Rank:
    """A model that computes without a break, and a kernel of this name beside it."""
    rank = Rank()
    for number, length_us in enumerate(lengths_us):
        start = 10_000 * number
        rank.kernel(start, start + 9_000, "ampere_sgemm_128x64_nn")
        rank.kernel(start + 100, start + 100 + length_us, name, stream=stream, blocks=blocks)
    return rank


def spinning() -> list[float]:
    rng = random.Random(3)
    return [200 + 8_000 * rng.random() ** 3 for _ in range(20)]


def test_expert_parallel_kernels_that_no_list_had_are_communication_and_hidden() -> None:
    name = "void dpsk::ep::internode::dispatch<false, 4>(int4*)"
    answer = measure_trace(build(beside(name, [8_000] * 20))).answer
    (exchange,) = (each for each in answer.kernel_classes if each.name == "communication")
    assert answer.communication == ["DeepEP"]
    assert exchange.hidden == pytest.approx(1)
    assert answer.ledgers[0].parts_ns["undivided communication"] == 0


def test_what_is_not_under_compute_is_exposed() -> None:
    answer = measure_trace(build(beside("ncclDevKernel_AllReduce", [9_900] * 20))).answer
    (exchange,) = (each for each in answer.kernel_classes if each.name == "communication")
    assert exchange.hidden == pytest.approx(8_900 / 9_900, abs=0.001)


def test_a_kernel_that_spins_on_a_stream_of_its_own_is_communication() -> None:
    answer = measure_trace(build(beside("my_secret_exchange", spinning()))).answer
    assert answer.communication == ["by behaviour"]


@pytest.mark.parametrize(
    "rank",
    [
        beside("my_secret_kernel", [3_000] * 20),
        beside("my_secret_kernel", spinning(), stream=7),
        beside("void at::native::reduce_kernel<512>(int)", spinning()),
        beside("my_secret_kernel", spinning()[:4]),
    ],
    ids=["lasts as long as its work", "on the model's stream", "a known class", "too few"],
)
def test_other_kernels_on_a_stream_of_their_own_compute(rank: Rank) -> None:
    assert measure_trace(build(rank)).answer.communication == []


def test_what_shares_the_stream_of_a_library_that_exchanges_belongs_to_it() -> None:
    rank = beside("ncclDevKernel_AllReduce", [500] * 20)
    for number in range(20):
        rank.kernel(10_000 * number + 700, 10_000 * number + 720, "my_layout", stream=_APART)
    assert "by behaviour" in measure_trace(build(rank)).answer.communication


def test_a_reduction_that_ranks_leave_together_is_communication() -> None:
    ranks = [Rank(rank=number) for number in range(4)]
    rng = random.Random(5)
    for step in range(10):
        arrivals = [10_000 * step + rng.uniform(0, 2_000) for _ in ranks]
        for rank, start in zip(ranks, arrivals, strict=True):
            rank.kernel(start, max(arrivals) + 50, "my_fast_reduce_kernel")
            rank.kernel(max(arrivals) + 100, max(arrivals) + 4_000, "ampere_sgemm_128x64_nn")
    assert measure_trace(build(*ranks)).answer.communication == ["by behaviour"]
