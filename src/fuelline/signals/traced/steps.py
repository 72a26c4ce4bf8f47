"""Steps of a trace: as the profiler marked them, as annotations repeat, or as kernels do.

What repeats on the device may be the layers of a model. A layer is within one call of the host (a
graph, an annotated step), or something runs after the last of them and in none: the end of a pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fuelline.schema.diagnosis.findings import StepStats
from fuelline.schema.run.trace import HostKind
from fuelline.signals.traced.kernels.lane import COPY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuelline.signals.traced.kernels.lane import DeviceLane
    from fuelline.timeline.trace import Trace

_FEWEST = 3
"""Fewer repetitions are no rhythm."""
_EVEN = 0.25
"""Standard deviation over mean of the distances between repetitions, at most."""
_ROUNDED = 0.001
"""Of the steps' time: marks that were rounded may overlap by this much, and nobody would notice."""
_RARE = 0.01
"""Of the kernel time: what may occur less often than once per step, as at the start of a run."""
_COVERED = 0.9
"""Of the kernel time: what steps must be made of, and what must lie within them."""
_DIGITS = re.compile(r"\d+")
_MARK = ("name", "start_ns", "end_ns")
_STEP_WORDS = re.compile(r"step|iter|batch|execute|forward|train", re.IGNORECASE)
_OF_RUNTIMES = re.compile(r"::|PJRT|PjRt|Executable")
"""Names that a runtime gives its own calls: one operation may be all that such a call runs."""


@dataclass(frozen=True)
class TracedSteps:
    """Where steps begin and end on one rank."""

    spans: pl.DataFrame
    """| start_ns | end_ns |, in order; they may overlap if the trace says so."""
    origin: str
    """`profiler`, `annotation`, `periodicity`, or empty."""
    name: str = ""
    marked_ns: tuple[int, int] | None = None
    """From the first mark to the end of the last, if steps are marked."""

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


def find_steps(trace: Trace, lane: DeviceLane, launches: pl.DataFrame) -> TracedSteps:
    """The best marks that there are; `launches` are the calls that put work on the device."""
    marked = trace.table("steps", lane.rank).sort("start_ns")
    if marked.height:
        spans = marked.select("start_ns", "end_ns")
        return TracedSteps(spans, "profiler", "ProfilerStep", _bounds(marked))
    marks = _read_marks(trace, lane.rank)
    return _by_annotation(marks) or _by_kernels(lane, launches, marks) or TracedSteps(_none(), "")


def _bounds(marks: pl.DataFrame) -> tuple[int, int]:
    return int(marks["start_ns"].min()), int(marks["end_ns"].max())  # type: ignore[arg-type]


def _none() -> pl.DataFrame:
    return pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64})


def _read_marks(trace: Trace, rank: int) -> pl.DataFrame:
    """| family | start_ns | end_ns |: annotations whose names speak of steps."""
    texts = trace.texts(rank)
    families = {
        name: _DIGITS.sub("#", text)
        for name, text in texts.items()
        if _STEP_WORDS.search(text) and not _OF_RUNTIMES.search(text)
    }
    parts = [
        part.filter(
            (pl.col("kind") == int(HostKind.ANNOTATION)) & pl.col("name").is_in(list(families))
        ).select(_MARK)
        for part in trace.parts("host", rank, ("name", "start_ns", "end_ns", "kind"))
    ]
    found = pl.concat([_none().with_columns(name=pl.lit(None, pl.UInt32)).select(_MARK), *parts])
    family = pl.col("name").replace_strict(families, default=None, return_dtype=pl.String)
    return found.select(family.alias("family"), "start_ns", "end_ns")


def _by_annotation(marks: pl.DataFrame) -> TracedSteps | None:
    """An annotation that repeats; of several, the longest."""
    best: TracedSteps | None = None
    longest = 0
    for key, all_of_it in marks.partition_by("family", as_dict=True).items():
        same = _outermost(all_of_it.sort("start_ns", -pl.col("end_ns")))
        spans = _between(same)
        reach = int((spans["end_ns"] - spans["start_ns"]).sum()) if spans.height else 0
        if same.height >= _FEWEST and _is_even(same["start_ns"]) and reach > longest:
            best = TracedSteps(spans, "annotation", str(key[0]), _bounds(same))
            longest = reach
    return best


def _outermost(marks: pl.DataFrame) -> pl.DataFrame:
    """Without marks that lie within another of their name, as XLA writes them twice."""
    reach = marks["end_ns"].cum_max().shift(1)
    return marks.filter((marks["start_ns"] >= reach).fill_null(value=True))


def _between(marks: pl.DataFrame) -> pl.DataFrame:
    """From each mark to the next: an annotation may cover only a part of its step."""
    return marks.select("start_ns", pl.col("start_ns").shift(-1).alias("end_ns")).drop_nulls()


def _is_even(starts_ns: pl.Series) -> bool:
    distances = starts_ns.sort().diff().drop_nulls().cast(pl.Float64)
    if distances.len() < _FEWEST - 1:
        return False
    mean, spread = float(distances.mean()), float(distances.std() or 0.0)
    return mean > 0 and spread <= _EVEN * mean


def _by_kernels(
    lane: DeviceLane, launches: pl.DataFrame, marks: pl.DataFrame
) -> TracedSteps | None:
    """Kernels that all occur equally often at even distances: one of each is a step."""
    if not lane.devices:
        return None
    first = lane.of(lane.devices[0])
    took = pl.col("end_ns") - pl.col("start_ns")
    counted = first.group_by("text").agg(
        pl.len().alias("times"), "start_ns", took.sum().alias("ns")
    )
    for text in _find_rhythms(counted.sort("times", "text")):
        beats = first.filter(pl.col("text") == text).sort("start_ns")
        if _are_steps(first, counted, beats) and not _are_within(beats, launches, marks):
            return TracedSteps(_between(beats), "periodicity", text)
    return None


def _find_rhythms(counted: pl.DataFrame) -> Iterator[str]:
    """Of each group of kernels that occur equally often and evenly, one; the rarest first.

    Layers repeat within a step, too. What occurs less often than they do separates them from steps:
    the ends of a step do, and nearly nothing occurs less often than steps.
    """
    whole = float(counted["ns"].sum())
    rarer_ns = 0.0
    for same in counted.partition_by("times", maintain_order=True):
        if rarer_ns > _RARE * whole:
            return
        even = same.filter(pl.col("start_ns").map_elements(_is_even, pl.Boolean, skip_nulls=False))
        if int(same["times"][0]) >= _FEWEST and even.height >= _FEWEST:
            yield str(even["text"][0])
        rarer_ns += float(same["ns"].sum())


def _are_steps(events: pl.DataFrame, counted: pl.DataFrame, beats: pl.DataFrame) -> bool:
    """Whether periods hold nearly all kernel time, the same kernels each, and nothing follows."""
    times, starts = beats.height, beats["start_ns"]
    last_ns = int(starts[-1])
    reach_ns = 2 * last_ns - int(starts[-2])
    took = pl.col("end_ns") - pl.col("start_ns")
    whole = float(counted["ns"].sum())
    inside = events.filter(pl.col("start_ns").is_between(int(starts[0]), reach_ns))
    each = (pl.col("times") / times).round()
    is_common = pl.col("times") >= times - 1
    same = counted.filter(is_common & ((pl.col("times") - each * times).abs() <= each))
    covered_ns = min(float(inside.select(took.sum()).item()), float(same["ns"].sum()))
    begins = pl.col("start_ns").list.min()
    copies = events["text"].filter(events["family"] == COPY).unique()
    is_copy = pl.col("text").is_in(copies.implode())
    ends = counted.filter(~is_common & (begins >= last_ns) & ~is_copy)
    return covered_ns >= _COVERED * whole and not ends.height


def _are_within(beats: pl.DataFrame, launches: pl.DataFrame, marks: pl.DataFrame) -> bool:
    """Whether several periods were launched by one call, or within one annotated step."""
    numbers = beats["correlation"].drop_nulls()
    if numbers.n_unique() < numbers.len():
        return True
    calls = launches.filter(pl.col("correlation").is_in(numbers.implode())).sort("call_ns")
    inside = calls.select("call_ns").join_asof(
        marks.sort("start_ns"), left_on="call_ns", right_on="start_ns", strategy="backward"
    )
    held = inside.filter(pl.col("call_ns") <= pl.col("end_ns"))
    return held.height > held["start_ns"].n_unique()
