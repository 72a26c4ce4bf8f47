"""Kernels are placed on the roofline by the work of the operator that they belong to."""

from __future__ import annotations

import pytest

from fuelline.schema.readings import Missing, Reading
from fuelline.signals.traced import measure_trace
from tests.unit.signals.traced.planted import Rank, build

NARROW = (1e9, 1e9)
WIDE = (1e12, 1e8)
"""Operations and bytes: an A100 needs 153 operations a byte to be bound by arithmetic."""


def bounds(rank: Rank) -> dict[str, str | None]:
    return {each.name: each.bound for each in measure_trace(build(rank)).answer.kernels}


def test_by_the_operators_number_where_the_profiler_writes_it() -> None:
    rank = Rank()
    rank.work(0, 10, 501, *NARROW)
    rank.work(20, 30, 502, *WIDE)
    rank.kernel(50, 90, "gemm_narrow", called=95, external=501)
    rank.kernel(100, 140, "gemm_wide", called=99, external=502)
    assert bounds(rank) == {"gemm_narrow": "memory", "gemm_wide": "compute"}


def test_by_the_launch_where_the_profiler_writes_its_number_instead() -> None:
    """Number 1 is that of the wide operator, too: it must not be taken for it."""
    rank = Rank()
    rank.work(0, 10, 501, *NARROW)
    rank.work(20, 30, 1, *WIDE)
    rank.kernel(50, 90, "gemm_narrow", called=8, external=1)
    rank.kernel(100, 140, "gemm_wide", called=28, external=2)
    rank.kernel(150, 160, "gemm_of_nobody", called=40, external=3)
    assert bounds(rank) == {
        "gemm_narrow": "memory",
        "gemm_wide": "compute",
        "gemm_of_nobody": None,
    }
    kernels = {each.name: each for each in measure_trace(build(rank)).answer.kernels}
    rate = kernels["gemm_wide"].flops_per_s
    assert isinstance(rate, Reading)
    assert rate.value == pytest.approx(1e12 / 40e-6)
    assert isinstance(kernels["gemm_of_nobody"].flops_per_s, Missing)


def test_work_without_bytes_has_a_rate_and_no_roof() -> None:
    rank = Rank()
    rank.work(0, 10, 501, 1e12, 0.0)
    rank.kernel(50, 90, "gemm", called=45, external=501)
    (kernel,) = measure_trace(build(rank)).answer.kernels
    assert isinstance(kernel.flops_per_s, Reading)
    assert kernel.bound is None


def test_numbers_of_launches_that_no_call_was_kept_of_tell_no_work() -> None:
    rank = Rank()
    rank.work(0, 10, 1, *WIDE)
    rank.kernel(50, 90, "gemm", correlation=1, external=1)
    (kernel,) = measure_trace(build(rank)).answer.kernels
    assert isinstance(kernel.flops_per_s, Missing)
