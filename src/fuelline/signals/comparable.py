"""What of two traces may be compared: their steps if these are the same thing, else their shares.

A trace is a window that somebody chose, so its length says nothing. Steps are equal work where both
were marked alike; those that were inferred from a rhythm, where the same kernel gave it and as much
is computed within. Of anything else only what a window's length does not change can be compared:
the shares of the devices' time, and how long the same kernels last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from fuelline.schema.units import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.schema.diagnosis.comparison import RunSamples

_SAME_WORK = 0.02
"""Two steps of the same work differ by less than this in their number of products: a step more or
less is cut off at the ends of a window."""


def find_mismatch(runs: Sequence[RunSamples]) -> str | None:
    """Why the steps of these runs are not compared; None if they may be."""
    if not all(run.is_stepped for run in runs):
        return "steps are not known in both"
    marks = list(dict.fromkeys(run.step_mark for run in runs))
    if len(marks) > 1:
        return "their steps were not found by the same marks"
    works = [run.products for run in runs if run.products is not None]
    if works and max(works) > (1 + _SAME_WORK) * min(works):
        return (
            "their steps were inferred and do not hold as much work "
            f"({min(works):.0f} and {max(works):.0f} products)"
        )
    return None


def as_total(run: RunSamples) -> RunSamples:
    """All steps as one."""
    return replace(
        run,
        steps=[sum(run.steps)],
        is_stepped=False,
        parts={name: [sum(values)] for name, values in run.parts.items()},
        kernels={name: [sum(values)] for name, values in run.kernels.items()},
        rare={},
        work=None,
        samples=None,
        left_out=0,
    )


def as_shares(run: RunSamples) -> RunSamples:
    """One step of length 1: the time of the devices, whatever its length."""
    return replace(
        run,
        steps=[1.0],
        is_stepped=False,
        parts={name: [share] for name, share in run.shares.items()},
        kernels={name: [share] for name, share in run.kernel_shares.items()},
        left_out=0,
        samples=None,
    )


def find_unit(runs: Sequence[RunSamples], *, stepped: bool) -> Literal["step", "run", "share"]:
    """What numbers are of: a step, or all of a run, or a share of its devices' time."""
    if stepped:
        return "step"
    return "share" if all(run.shares for run in runs) else "run"


def note_mismatch(before: RunSamples, after: RunSamples, mismatch: str) -> list[str]:
    """What is compared instead of steps."""
    if not before.shares or not after.shares:
        note = (
            "several steps are not known in both runs, so totals are compared; they also differ if "
            "one run was simply longer"
        )
        return [note]
    lengths = _compare_lengths(before, after)
    shares = f"{mismatch}, so shares of the devices' time are compared"
    return [shares, *([lengths] if lengths else [])]


def _compare_lengths(before: RunSamples, after: RunSamples) -> str | None:
    """How long the kernels that both ran last, a sentence; None if there are none.

    Each counts as often as it ran before, so that another mixture changes nothing.
    """
    both = [name for name in before.kernel_times if name in after.kernel_times]
    old = sum(count * mean for count, mean in (before.kernel_times[name] for name in both))
    new = sum(before.kernel_times[name][0] * after.kernel_times[name][1] for name in both)
    whole = sum(count * mean for count, mean in before.kernel_times.values())
    if not old or not whole:
        return None
    return (
        f"the {len(both)} kernels that compute in both, {percent(old / whole)} of that time before,"
        f" last {new / old:.2f} times as long"
    )
