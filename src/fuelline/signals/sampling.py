"""A run step by step, for comparisons: parts of the budget, parts of the ledger, kernel classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from fuelline.schema.diagnosis.comparison import RunSamples
from fuelline.signals.traced.kernels.lane import COMPUTE
from fuelline.timeline.intervals import covered_ns, merge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fuelline.schema.diagnosis.comparison import RunWork
    from fuelline.schema.diagnosis.findings import Diagnosis
    from fuelline.schema.parts import StepPart
    from fuelline.signals.traced import Survey
    from fuelline.signals.traced.ledger import Account
    from fuelline.signals.traced.steps import TracedSteps
    from fuelline.timeline.segments import StepSegments


_COVERED = 0.95
"""Of a step at either end: between a device's first event and its last, or it is left out."""
_FEWEST = 2
"""Steps that are kept in any case: noise needs two."""


_RARE_PARTS: tuple[StepPart, ...] = (
    "epoch start",
    "checkpoint",
    "validation",
    "compile",
    "garbage collection",
    "profiler",
)
_RARE = 0.25
"""Of the steps: what comes in more of them is a part of a usual step."""


def sample_recording(
    segments: StepSegments, diagnosis: Diagnosis, label: str, work: RunWork | None = None
) -> RunSamples:
    """Steps of a recorded run from boundary to boundary; what follows the last is left out."""
    ends = segments.boundaries
    spans = pl.DataFrame({"start_ns": ends[:-1], "end_ns": ends[1:]})
    parts = {
        str(name): _per_span(spans, own)
        for (name,), own in segments.pieces.partition_by("part", as_dict=True).items()
    }
    return RunSamples(
        label=label,
        kind="recorded",
        steps=_seconds(spans),
        is_stepped=True,
        parts=parts,
        rare=_rare(parts, spans.height),
        work=work,
        samples=_samples_a_step(diagnosis),
        devices=[device.name for device in diagnosis.devices],
        ranks=max(1, diagnosis.collectives.ranks),
        command=diagnosis.run.command,
        verdict=diagnosis.verdict.code or "",
        sentence=diagnosis.verdict.sentence,
    )


def _rare(parts: dict[str, list[float]], steps: int) -> dict[str, list[float]]:
    """Seconds of each time that a rare part came; two in one step count as one."""
    found = {
        part: [seconds for seconds in parts.get(part, []) if seconds > 0] for part in _RARE_PARTS
    }
    return {part: times for part, times in found.items() if 0 < len(times) <= _RARE * steps}


def _samples_a_step(diagnosis: Diagnosis) -> float | None:
    rate, window = diagnosis.steps.samples_per_s, diagnosis.window
    return rate * window.seconds / diagnosis.steps.count if rate and window is not None else None


def sample_trace(survey: Survey, diagnosis: Diagnosis, label: str) -> RunSamples:
    """Steps of an imported trace, mean over devices; the whole trace if none are marked.

    A step lasts from its start to that of the next on its rank's own host.
    """
    spans = [_spans(account, survey.steps[account.ledger.rank]) for account in survey.accounts]
    whole = min((span.height for span in spans), default=0)
    spans = _inner([span.head(whole) for span in spans], survey.accounts)
    count = spans[0].height
    parts = [
        {name: _per_span(span, own) for name, own in _parts(account).items()}
        for account, span in zip(survey.accounts, spans, strict=True)
    ]
    kernels = [
        _classes(account, span) for account, span in zip(survey.accounts, spans, strict=True)
    ]
    marks = {_mark(survey.steps[account.ledger.rank]) for account in survey.accounts}
    steps = [_seconds(span) for span in spans]
    mean_steps = _mean([{"": each} for each in steps], count).get("", [])
    ledger = _mean(parts, count)
    return RunSamples(
        label=label,
        kind="trace",
        steps=mean_steps,
        is_stepped=len(marks) == 1 and whole > 1,
        left_out=whole - count,
        step_mark=min(marks),
        products=_products(survey.accounts, spans) if _INFERRED in min(marks) else None,
        shares=_shares([account.ledger.shares() for account in survey.accounts]),
        kernel_shares=_shares([_class_shares(account) for account in survey.accounts]),
        kernel_times=_kernel_times(survey.accounts),
        parts=_with_rest(ledger, mean_steps),
        kernels=_mean(kernels, count),
        devices=[device.name for device in diagnosis.devices],
        ranks=len(survey.lanes),
        command=diagnosis.run.command,
        verdict=diagnosis.verdict.code or "",
        sentence=diagnosis.verdict.sentence,
    )


_INFERRED = "periodicity"
_PRODUCTS = ("attention", "convolution", "gemm")


def _mark(steps: TracedSteps) -> str:
    """What the steps of a rank were found by; nothing if there are none to compare."""
    return f"{steps.origin} {steps.name}" if steps.spans.height > 1 else ""


def _products(accounts: list[Account], spans: list[pl.DataFrame]) -> float:
    """Kernels a step that multiply matrices."""
    count = 0
    for account, span in zip(accounts, spans, strict=True):
        is_inside = pl.col("start_ns").is_between(
            span["start_ns"][0], span["end_ns"][-1], closed="left"
        )
        count += account.events.filter(is_inside & pl.col("class").is_in(_PRODUCTS)).height
    return count / sum(span.height for span in spans)


def _shares(devices: Sequence[Mapping[Any, float]]) -> dict[str, float]:
    """Mean over devices."""
    names = dict.fromkeys(name for device in devices for name in device)
    return {name: sum(device.get(name, 0.0) for device in devices) / len(devices) for name in names}


def _class_shares(account: Account) -> dict[str, float]:
    took = pl.col("end_ns") - pl.col("start_ns")
    sums = account.events.group_by("class").agg(
        (took.sum() / account.ledger.wall_ns).alias("share")
    )
    return {str(name): share for name, share in sums.sort("class").iter_rows()}


def _kernel_times(accounts: list[Account]) -> dict[str, tuple[int, float]]:
    """How often each kernel that computes ran, and how long on average."""
    took = pl.col("end_ns") - pl.col("start_ns")
    found = pl.concat(
        [
            account.events.filter(pl.col("family") == COMPUTE).select(
                pl.col("text").cast(pl.String), took.alias("ns")
            )
            for account in accounts
        ]
    )
    sums = found.group_by("text").agg(pl.len(), (pl.col("ns").mean() / 1e9).alias("mean"))
    return {name: (count, mean) for name, count, mean in sums.sort("text").iter_rows()}


def _spans(account: Account, steps: TracedSteps) -> pl.DataFrame:
    """Windows of the steps, or of all that the device did."""
    starts = steps.boundaries_ns
    if starts.len() < 2:
        ledger = account.ledger
        bounds = {"start_ns": [ledger.start_ns], "end_ns": [ledger.start_ns + ledger.wall_ns]}
        return pl.DataFrame(bounds)
    last = int(steps.spans["end_ns"].max())  # type: ignore[arg-type]
    ends = pl.concat([starts[1:], pl.Series([max(last, int(starts[-1]))])])
    return pl.DataFrame({"start_ns": starts, "end_ns": ends})


def _inner(spans: list[pl.DataFrame], accounts: list[Account]) -> list[pl.DataFrame]:
    """Without steps at both ends that reach beyond what was recorded of the devices.

    A profiler starts and stops in the middle of something; such a step is no step like the others.
    """
    inside = []
    for span, account in zip(spans, accounts, strict=True):
        first, last = account.ledger.start_ns, account.ledger.start_ns + account.ledger.wall_ns
        covered = span["end_ns"].clip(first, last) - span["start_ns"].clip(first, last)
        inside.append((covered / (span["end_ns"] - span["start_ns"]).clip(1)).to_list())
    worst = [min(shares) for shares in zip(*inside, strict=True)]
    low, high = 0, len(worst)
    while high - low > _FEWEST and worst[low] < _COVERED:
        low += 1
    while high - low > _FEWEST and worst[high - 1] < _COVERED:
        high -= 1
    return [span.slice(low, high - low) for span in spans]


def _parts(account: Account) -> dict[str, pl.DataFrame]:
    parts = account.all_pieces().partition_by("part", as_dict=True)
    return {str(name): own for (name,), own in parts.items()}


def _classes(account: Account, spans: pl.DataFrame) -> dict[str, list[float]]:
    """Each event counts for the step that it starts in, with all of its length."""
    inside = account.events.filter(
        pl.col("start_ns").is_between(spans["start_ns"][0], spans["end_ns"][-1], closed="left")
    )
    step = spans["start_ns"].search_sorted(inside["start_ns"], side="right").cast(pl.Int64) - 1
    took = (inside["end_ns"] - inside["start_ns"]) / 1e9
    sums = (
        pl.DataFrame({"step": step, "class": inside["class"], "took": took})
        .group_by("class", "step")
        .agg(pl.col("took").sum())
    )
    found = {name: [0.0] * spans.height for name in sums["class"].unique().sort()}
    for name, place, seconds in sums.iter_rows():
        found[name][place] = seconds
    return found


def _per_span(spans: pl.DataFrame, pieces: pl.DataFrame) -> list[float]:
    seconds: pl.Series = covered_ns(spans, merge(pieces)) / 1e9
    return seconds.to_list()


def _seconds(spans: pl.DataFrame) -> list[float]:
    seconds: pl.Series = (spans["end_ns"] - spans["start_ns"]) / 1e9
    return seconds.to_list()


def _mean(devices: list[dict[str, list[float]]], count: int) -> dict[str, list[float]]:
    """Mean over devices, step by step; what a device lacks is zero there."""
    names = dict.fromkeys(name for device in devices for name in device)
    none = [0.0] * count
    return {
        name: [
            sum(values) / len(devices)
            for values in zip(*(device.get(name, none) for device in devices), strict=True)
        ]
        for name in names
    }


def _with_rest(parts: dict[str, list[float]], steps: list[float]) -> dict[str, list[float]]:
    """Before a device's first event and after its last it has no account: that is unknown."""
    rest = [
        length - sum(values[place] for values in parts.values())
        for place, length in enumerate(steps)
    ]
    known = parts.get("unknown", [0.0] * len(steps))
    total = [one + other for one, other in zip(known, rest, strict=True)]
    return {**parts, "unknown": total} if any(abs(value) > 0 for value in total) else parts
