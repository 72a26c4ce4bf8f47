"""Each rung of the ladder says what the trace lacks for it, or takes the next best."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fuelline.schema.readings import Missing, Reading
from fuelline.schema.run.trace import ChipFacts
from fuelline.signals.traced import measure_trace
from tests.unit.signals.traced.planted import Rank, build

CHIP = ChipFacts(device=0, name="NVIDIA A100-SXM4-80GB", sm_count=100, max_threads_per_sm=2000)


def rung(name: str, chip: ChipFacts, *kernels: dict[str, Any]) -> Reading | Missing:
    """One rung of device 0, for kernels of 100 us that follow each other."""
    rank = Rank()
    for place, kernel in enumerate(kernels):
        rank.kernel(100 * place, 100 * place + 100, **kernel)
    trace = build(rank)
    ranks = [msgspec.structs.replace(trace.facts.ranks[0], chips=[chip])]
    object.__setattr__(trace, "facts", msgspec.structs.replace(trace.facts, ranks=ranks))
    return measure_trace(trace).facts.devices[0].share_of(name)


def why_none(found: Reading | Missing) -> str:
    assert isinstance(found, Missing)
    return found.reason


def test_without_the_profilers_estimate_threads_are_counted_against_the_chip() -> None:
    kernel = {"blocks": 50, "threads": 1000}
    found = rung("estimated occupancy", CHIP, kernel)
    assert isinstance(found, Reading)
    assert found.value == pytest.approx(50 * 1000 / (100 * 2000))
    unknown = msgspec.structs.replace(CHIP, max_threads_per_sm=None)
    assert "neither an estimate" in why_none(rung("estimated occupancy", unknown, kernel))


def test_kernels_without_a_grid_have_no_occupancy_and_amd_says_why() -> None:
    kernel = {"blocks": None, "threads": None}
    assert "were not recorded" in why_none(rung("estimated occupancy", CHIP, kernel))
    amd = msgspec.structs.replace(CHIP, warp_size=64)
    said = why_none(rung("estimated occupancy", amd, kernel))
    assert "were not recorded" not in said
    assert said == why_none(rung("SM fill", amd, kernel))


def test_operators_are_not_divided_among_several_devices_of_one_trace() -> None:
    found = rung("MFU", CHIP, {"device": 0}, {"device": 1})
    assert "several devices" in why_none(found)
