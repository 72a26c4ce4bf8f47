"""Steps of a trace: as the profiler marked them, as annotations repeat, or as kernels do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.findings import StepStats
from fuelline.schema.run.trace import HostKind

if TYPE_CHECKING:
    from fuelline.signals.traced.lane import DeviceLane
    from fuelline.timeline.trace import Trace

_FEWEST = 3
"""Fewer repetitions are no rhythm."""
_EVEN = 0.25
"""Standard deviation over mean of the distances between repetitions, at most."""
_ROUNDED = 0.001
"""Of the steps' time: marks that were rounded may overlap by this much, and nobody would notice."""
_RARE = 0.01
"""Of the kernel time: what may occur less often than once per step, as at the start of a run."""
_DIGITS = re.compile(r"\d+")
_STEP_WORDS = re.compile(r"step|iter|batch|execute|forward|train", re.IGNORECASE)


@dataclass(frozen=True)
class TracedSteps:
    """Where steps begin and end on one rank."""

    spans: pl.DataFrame
    """| start_ns | end_ns |, in order; they may overlap if the trace says so."""
    origin: str
    """`profiler`, `annotation`, `periodicity`, or empty."""
    name: str = ""

    @property
    def boundaries_ns(self) -> pl.Series:
        """Starts of steps, sorted."""
        starts: pl.Series = self.spans["start_ns"].sort()
        return starts

    @property
    def overlap(self) -> bool:
        """Whether a step began before the one before it ended, by more than rounding."""
        reach = self.spans["end_ns"].cum_max().shift(1)
        whole = int((self.spans["end_ns"] - self.spans["start_ns"]).sum())
        inside = int((reach - self.spans["start_ns"]).clip(lower_bound=0).sum() or 0)
        return inside > _ROUNDED * whole

    def stats(self) -> StepStats:
        """Lengths in seconds."""
        took = (self.spans["end_ns"] - self.spans["start_ns"]) / 1e9
        if not took.len():
            return StepStats(count=0)
        return StepStats(
            count=took.len(),
            mean=float(took.mean()),
            p50=float(took.median()),
            p95=float(took.quantile(0.95, "linear")),
        )


def find_steps(trace: Trace, lane: DeviceLane) -> TracedSteps:
    """The best marks that there are."""
    marked = trace.table("steps", lane.rank).sort("start_ns")
    if marked.height:
        return TracedSteps(marked.select("start_ns", "end_ns"), "profiler", "ProfilerStep")
    return _by_annotation(trace, lane.rank) or _by_kernels(lane) or TracedSteps(_none(), "")


def _none() -> pl.DataFrame:
    return pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64})


def _by_annotation(trace: Trace, rank: int) -> TracedSteps | None:
    """An annotation that repeats and whose name speaks of steps; of several, the longest."""
    texts = trace.texts(rank)
    families = {
        name: _DIGITS.sub("#", text) for name, text in texts.items() if _STEP_WORDS.search(text)
    }
    parts = [
        part.filter(
            (pl.col("kind") == int(HostKind.ANNOTATION)) & pl.col("name").is_in(list(families))
        ).select("name", "start_ns", "end_ns")
        for part in trace.parts("host", rank, ("name", "start_ns", "end_ns", "kind"))
    ]
    found = pl.concat(parts) if parts else pl.DataFrame()
    if not found.height:
        return None
    found = found.with_columns(pl.col("name").replace_strict(families).alias("family"))
    best: TracedSteps | None = None
    longest = 0
    for key, same in found.partition_by("family", as_dict=True).items():
        spans = _between(same.sort("start_ns"))
        reach = int((spans["end_ns"] - spans["start_ns"]).sum()) if spans.height else 0
        if same.height >= _FEWEST and _is_even(same["start_ns"]) and reach > longest:
            best, longest = TracedSteps(spans, "annotation", str(key[0])), reach
    return best


def _between(marks: pl.DataFrame) -> pl.DataFrame:
    """From each mark to the next: an annotation may cover only a part of its step."""
    return marks.select("start_ns", pl.col("start_ns").shift(-1).alias("end_ns")).drop_nulls()


def _is_even(starts_ns: pl.Series) -> bool:
    distances = starts_ns.sort().diff().drop_nulls().cast(pl.Float64)
    if distances.len() < _FEWEST - 1:
        return False
    mean, spread = float(distances.mean()), float(distances.std() or 0.0)
    return mean > 0 and spread <= _EVEN * mean


def _by_kernels(lane: DeviceLane) -> TracedSteps | None:
    """Kernels that all occur equally often at even distances: one of each is a step."""
    if not lane.devices:
        return None
    first = lane.of(lane.devices[0])
    took = pl.col("end_ns") - pl.col("start_ns")
    counted = first.group_by("text").agg(
        pl.len().alias("times"), "start_ns", took.sum().alias("ns")
    )
    text = _find_rhythm(counted.sort("times", "text"))
    if text is None:
        return None
    spans = _between(first.filter(pl.col("text") == text).sort("start_ns"))
    return TracedSteps(spans, "periodicity", text)


def _find_rhythm(counted: pl.DataFrame) -> str | None:
    """A kernel of the group that occurs once per step.

    Layers repeat within a step, too. What occurs less often than they do separates them from steps:
    the ends of a step do, and nearly nothing occurs less often than steps.
    """
    whole = float(counted["ns"].sum())
    rarer_ns = 0.0
    for same in counted.partition_by("times", maintain_order=True):
        if rarer_ns > _RARE * whole:
            return None
        even = same.filter(pl.col("start_ns").map_elements(_is_even, pl.Boolean, skip_nulls=False))
        if int(same["times"][0]) >= _FEWEST and even.height >= _FEWEST:
            return str(even["text"][0])
        rarer_ns += float(same["ns"].sum())
    return None
