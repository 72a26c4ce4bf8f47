"""Traces whose steps are another thing are compared by what a window's length does not change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fuelline.schema.diagnosis.comparison import RunSamples
from fuelline.signals.changes import compare_samples

_MARKED = "profiler ProfilerStep"
_RHYTHM = "periodicity my_kernel"


def trace(step_s: float = 0.02, **more: Any) -> RunSamples:
    """Thirty steps of a trace that computes for four fifths of its time."""
    lengths = [step_s * (1 + 0.001 * (place % 3)) for place in range(30)]
    made = RunSamples(
        label="trace",
        kind="trace",
        steps=lengths,
        is_stepped=True,
        parts={
            "useful compute": [0.8 * length for length in lengths],
            "launch-bound": [0.2 * length for length in lengths],
        },
        step_mark=_MARKED,
        shares={"useful compute": 0.8, "launch-bound": 0.2},
        kernel_shares={"gemm": 0.8},
        kernel_times={"gemm_128": (300, 0.001), "softmax": (300, 0.0001)},
    )
    return msgspec.structs.replace(made, **more)


def test_steps_with_the_same_marks_are_compared_as_steps() -> None:
    comparison = compare_samples(trace(0.02), trace(0.03), threshold=0.05)
    assert (comparison.unit, comparison.judgement, comparison.is_over) == ("step", "slower", True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (trace(0.158, step_mark=_RHYTHM), trace(0.02, step_mark="periodicity another")),
        (trace(0.02, step_mark=_RHYTHM), trace(0.158)),
        (trace(0.02, is_stepped=False), trace(0.158)),
        (
            trace(0.02, step_mark=_RHYTHM, products=34.0),
            trace(0.158, step_mark=_RHYTHM, products=270.0),
        ),
    ],
    ids=["other marks", "one inferred", "one without", "other work"],
)
def test_other_steps_are_compared_by_shares_and_never_judged(
    before: RunSamples, after: RunSamples
) -> None:
    comparison = compare_samples(before, after, threshold=0.05)
    assert comparison.unit == "share"
    assert comparison.judgement == "cannot tell"
    assert not comparison.is_over
    assert not any(part.change for part in comparison.parts)
    assert (comparison.before.steps, comparison.after.steps) == (0, 0)


def test_inferred_steps_with_the_same_work_are_compared_as_steps() -> None:
    before = trace(0.02, step_mark=_RHYTHM, products=34.0)
    after = trace(0.03, step_mark=_RHYTHM, products=34.2)
    assert compare_samples(before, after).unit == "step"


def test_how_long_the_same_kernels_last_is_said_whatever_their_mixture() -> None:
    slower = {"gemm_128": (50, 0.002), "softmax": (9_000, 0.0001), "new": (1, 1.0)}
    after = trace(step_mark=_RHYTHM, kernel_times=slower)
    notes = " ".join(compare_samples(trace(), after).notes)
    assert "the 2 kernels that compute in both" in notes
    assert "last 1.91 times as long" in notes


def test_shares_of_a_window_that_was_longer_are_the_same() -> None:
    after = trace(step_mark=_RHYTHM, shares={"useful compute": 0.7, "launch-bound": 0.3})
    changes = {part.name: part.change for part in compare_samples(trace(), after).parts}
    assert changes == pytest.approx({"useful compute": -0.1, "launch-bound": 0.1})
