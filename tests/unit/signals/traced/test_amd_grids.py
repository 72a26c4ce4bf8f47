"""AMD's grids: counted in blocks or in threads, told by the launching call, or not believed."""

from __future__ import annotations

import msgspec
import pytest

from fuelline.schema.readings import Missing, Reading
from fuelline.schema.run.trace import ChipFacts
from fuelline.signals.traced import measure_trace
from tests.unit.signals.traced.planted import Rank, build

CHIP = ChipFacts(device=0, name="AMD Instinct MI300X", sm_count=100, warp_size=64)


def measure_fill(*grids: tuple[str, int]) -> Reading | Missing:
    """SM fill of kernels of 256 threads a block, side by side, by call and recorded grid."""
    rank = Rank()
    for place, (call, grid) in enumerate(grids):
        start, number = 100.0 * place, place + 1
        rank.call(start, start + 1, call, correlation=number)
        rank.kernel(start + 5, start + 105, blocks=grid, threads=256, correlation=number)
    trace = build(rank)
    (facts,) = trace.facts.ranks
    ranks = [msgspec.structs.replace(facts, chips=[CHIP])]
    object.__setattr__(trace, "facts", msgspec.structs.replace(trace.facts, ranks=ranks))
    (device,) = measure_trace(trace).facts.devices
    return device.share_of("SM fill")


def test_grids_of_module_launches_are_threads_and_those_of_others_blocks() -> None:
    fill = measure_fill(("hipExtModuleLaunchKernel", 50 * 256), ("hipLaunchKernel", 30))
    assert isinstance(fill, Reading)
    assert fill.value == pytest.approx((0.5 + 0.3) / 2)


def test_without_a_grid_that_can_only_be_blocks_nothing_is_said() -> None:
    assert isinstance(measure_fill(("hipLaunchKernel", 256)), Missing)


def test_a_module_launch_whose_grid_is_no_multiple_of_its_blocks_is_not_believed() -> None:
    assert isinstance(measure_fill(("hipExtModuleLaunchKernel", 257)), Missing)
