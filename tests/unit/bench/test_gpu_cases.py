"""The zoo's cases of GPU kind are told to the right device, and each control has no fault."""

from __future__ import annotations

import pytest
from bench.zoo.cases import CASES
from bench.zoo.gpu_cases import GPU_CASES


def test_they_are_part_of_the_zoo_and_there_are_enough_of_them() -> None:
    names = {case.name for case in CASES}
    assert {case.name for case in GPU_CASES} <= names
    assert len(GPU_CASES) >= 20
    assert sum(case.healthy for case in GPU_CASES) >= 5


@pytest.mark.parametrize("case", GPU_CASES, ids=lambda case: case.name)
def test_each_runs_on_the_emulated_device_whatever_the_zoo_was_asked_for(case) -> None:
    assert case.job == "gpu" or case.device == "emu"


@pytest.mark.parametrize("case", GPU_CASES, ids=lambda case: case.name)
def test_a_fault_can_be_taken_out_and_a_control_has_none(case) -> None:
    assert bool(case.without) != case.healthy
