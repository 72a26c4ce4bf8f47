"""What binds an operator, and what batch size changes it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fuelline.plan.roofline.points import OperatorWork, place
from fuelline.report.plan.roofline import write_points
from fuelline.report.renderers.markdown import render_markdown
from fuelline.schema.plan.roofline import ModelPoints
from fuelline.schema.readings import Reading
from tests.unit.plan.rooflines import roofline


def work(flops: float, weight: float, moved: float, calls: int = 1) -> OperatorWork:
    return OperatorWork(
        name="addmm",
        shapes="",
        precision="fp32",
        module="",
        calls=calls,
        flops=flops,
        weight_bytes=weight,
        moved_bytes=moved,
        seconds=Reading(value=1.0, unit="s"),
    )


def test_few_flops_a_byte_wait_for_memory_and_many_for_math() -> None:
    assert place(work(1e9, 1e9, 0), roofline(), 1.0, 1).bound == "memory"
    assert place(work(1e12, 1e9, 0), roofline(), 1.0, 1).bound == "math"


def test_what_is_smaller_than_its_launch_is_launch_bound() -> None:
    point = place(work(10, 10, 10, calls=3), roofline(), 1.0, 1)
    assert point.bound == "launch"
    assert point.roof_s == pytest.approx(3 * 2e-6)


def test_the_roof_is_the_larger_of_both_times() -> None:
    point = place(work(1e11, 1e9, 1e9), roofline(), 2.0, 1)
    assert point.roof_s == pytest.approx(1.0)
    assert point.reached_share == pytest.approx(1.0)
    assert point.share == pytest.approx(0.5)


def test_at_the_batch_that_turns_both_limits_are_equal() -> None:
    """2 FLOPs a weight of 4 bytes and sample: the ridge of 10 is met at 20 samples, and a little
    more."""
    weights, batch = 1e6, 2
    point = place(work(2 * weights * batch, 4 * weights, 8000 * batch), roofline(), 1.0, batch)
    turn = point.batch_to_turn
    assert turn is not None
    flops, moved = 2 * weights * turn, 4 * weights + 8000 * turn
    assert flops / 100e9 == pytest.approx(moved / 10e9)
    assert turn > 20


def test_what_has_no_weights_turns_at_no_batch() -> None:
    assert place(work(0, 0, 1e9), roofline(), 1.0, 4).batch_to_turn is None
    assert place(work(1e9, 0, 1e9), roofline(), 1.0, 4).batch_to_turn is None


def test_without_a_common_batch_there_is_no_advice_about_it() -> None:
    assert place(work(2e6, 4e6, 0), roofline(), 1.0, None).batch_to_turn is None


def test_an_operator_faster_than_its_roof_is_explained_and_not_a_share_above_the_whole() -> None:
    point = place(work(1e9, 1e9, 0), roofline(), 1.0, 1)
    fast = replace(point, seconds=Reading(value=point.roof_s / 2.26, unit="s"), share=1.0)
    found = ModelPoints(
        target="model.py:build",
        inputs="1x8",
        roofline=roofline(),
        points=(fast,),
        total_s=Reading(value=1.0, unit="s"),
        flops=1e9,
        moved_bytes=1e9,
        params=1,
        batch=1,
        traced_s=fast.seconds.value,
    )
    text = render_markdown(write_points(found))
    assert "226" not in text
    assert "above: faster than the roof as it was measured." in text
    assert "memory-bound: its tensors are still in a cache" in text
    assert "operators are faster than that" in text
