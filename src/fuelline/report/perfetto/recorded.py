"""A recorded run as tracks: steps, where the time went, what hooks and the observer saw, findings.

Times are moved by what the caller says, so that hosts and runs begin near zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.report.perfetto.track import Instants, Spans, Values
from fuelline.schema.wire import Kind, PauseKind
from fuelline.timeline import events
from fuelline.timeline.segments import cut_segments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fuelline.report.perfetto.track import Track
    from fuelline.schema.diagnosis.findings import Diagnosis
    from fuelline.timeline import Timeline
    from fuelline.timeline.segments import StepSegments
    from fuelline.timeline.trainer import Trainer

_SECOND_NS = 1_000_000_000
_NAMES = {
    Kind.WAIT: "wait for a batch",
    Kind.SOURCE_START: "iter",
    Kind.STEP: "optimizer",
    Kind.SYNC: "synchronise",
}
"""How events are called where it is not by their kind."""
_PAUSE_NAMES = {
    PauseKind.CHECKPOINT: "save",
    PauseKind.VALIDATION: "validation",
    PauseKind.COMPILE: "compile",
}
_NOTES = (
    *(Kind.TEXT, Kind.SOURCE, Kind.BLINDSPOT, Kind.PROCESS, Kind.RANK, Kind.WORKER, Kind.FLOPS),
    *(Kind.CREW, Kind.NODE, Kind.MARK),
)
"""What has no length, or none of the thread's own."""
_DETAILS = {
    "samples": ((Kind.WAIT, "samples"), (Kind.FETCH, "samples")),
    "bytes": ((Kind.COPY, "size_bytes"),),
}
"""What is shown of an event, and from which field of which kind."""


def draw_findings(diagnosis: Diagnosis, window_ns: tuple[int, int] | None) -> Iterator[Track]:
    """The verdict and each finding over the window that it speaks of."""
    process = "fuelline: what was found"
    start_ns, end_ns = window_ns or (0, 0)
    yield Instants(
        process=process,
        name="verdict",
        frame=pl.DataFrame(
            {
                "at_ns": [start_ns],
                "name": [diagnosis.verdict.sentence],
                "code": [diagnosis.verdict.code],
            },
            schema_overrides={"code": pl.String},
        ),
    )
    for finding in diagnosis.findings if window_ns is not None else ():
        yield Spans(
            process=process,
            name=f"{finding.code} {finding.name}",
            frame=pl.DataFrame(
                {
                    "start_ns": [start_ns],
                    "end_ns": [end_ns],
                    "name": [f"{finding.code} {finding.sentence}"],
                    "lost_share": [finding.lost_share],
                    "lost_seconds": [finding.lost_seconds],
                    "confidence": [finding.confidence],
                }
            ),
        )


def draw_recording(
    timeline: Timeline, trainers: Sequence[Trainer], shift_ns: int, label: str = ""
) -> Iterator[Track]:
    """All tracks of one host's recording."""
    of_trainer = {pid: trainer.pid for trainer in trainers for pid in trainer.worker_pids}
    names = {trainer.pid: _trainer_name(trainer, label) for trainer in trainers}
    for trainer in trainers:
        segments = cut_segments(timeline, trainer)
        if segments is not None:
            yield from _draw_budget(segments, names[trainer.pid], shift_ns)
    for pid in timeline.table("events")["pid"].unique().sort():
        kind = "loader worker" if pid in of_trainer else "process"
        process = names.get(pid, f"{label}{kind} {pid}")
        yield from _draw_events(timeline, pid, process, shift_ns)
        yield from _draw_states(timeline, pid, process, shift_ns)
    yield from _draw_devices(timeline, shift_ns, label)


def _trainer_name(trainer: Trainer, label: str) -> str:
    rank = "" if trainer.rank is None else f"rank {trainer.rank}, "
    return f"{label}{rank}trainer {trainer.pid}"


def _draw_budget(segments: StepSegments, process: str, shift_ns: int) -> Iterator[Track]:
    ends = segments.boundaries
    steps = pl.DataFrame({"start_ns": ends[:-1], "end_ns": ends[1:]}).with_row_index("step", 1)
    yield Spans(
        process=process,
        name="steps",
        frame=_shifted(steps.with_columns(name=pl.format("step {}", "step")), shift_ns),
    )
    pieces = segments.pieces.select("start_ns", "end_ns", pl.col("part").alias("name"))
    yield Spans(process=process, name="where the time went", frame=_shifted(pieces, shift_ns))


def _draw_events(timeline: Timeline, pid: int, process: str, shift_ns: int) -> Iterator[Track]:
    """What the hooks saw, a track per thread."""
    shown = timeline.table("events").filter(
        (pl.col("pid") == pid) & ~pl.col("kind").is_in([int(kind) for kind in _NOTES])
    )
    names = {int(kind): _NAMES.get(kind, kind.name.lower().replace("_", " ")) for kind in Kind}
    for (tid,), own in sorted(shown.partition_by("tid", as_dict=True).items()):
        frame = own.select(
            "start_ns",
            (pl.col("start_ns") + pl.col("dur_ns")).alias("end_ns"),
            pl.coalesce(
                events.pick(Kind.PAUSE, "pause_kind").replace_strict(
                    _PAUSE_NAMES, default=None, return_dtype=pl.String
                ),
                pl.col("kind").replace_strict(names, default="other", return_dtype=pl.String),
            ).alias("name"),
            *_detail_columns(),
        )
        yield Spans(process=process, name=f"thread {tid}", frame=_shifted(frame, shift_ns))


def _detail_columns() -> list[pl.Expr]:
    return [
        pl.coalesce([events.pick(kind, field) for kind, field in fields]).alias(name)
        for name, fields in _DETAILS.items()
    ]


def _draw_states(timeline: Timeline, pid: int, process: str, shift_ns: int) -> Iterator[Track]:
    """What the observer saw each thread do most, second by second."""
    places = timeline.table("places").select(pl.col("id").alias("place"), "path", "mount")
    states = timeline.table("states").filter(pl.col("pid") == pid).join(places, "place", how="left")
    for (tid,), own in sorted(states.partition_by("tid", as_dict=True).items()):
        seen = own.group_by("window_ns", "state").agg(
            pl.col("count").sum(),
            pl.col("syscall").sort_by("count").last(),
            pl.col("path").sort_by("count").last(),
        )
        share = pl.col("count") / pl.col("count").sum().over("window_ns")
        frame = (
            seen.with_columns(share=share)
            .sort("count", "state", descending=[True, False])
            .unique("window_ns", keep="first", maintain_order=True)
            .select(
                pl.col("window_ns").alias("start_ns"),
                (pl.col("window_ns") + _SECOND_NS).alias("end_ns"),
                pl.col("state").alias("name"),
                "share",
                pl.when(pl.col("syscall") != "").then("syscall").alias("syscall"),
                "path",
            )
        )
        yield Spans(process=process, name=f"thread {tid}, mostly", frame=_shifted(frame, shift_ns))


def _draw_devices(timeline: Timeline, shift_ns: int, label: str) -> Iterator[Track]:
    devices = timeline.table("devices")
    for (device, name), own in sorted(devices.partition_by("device", "name", as_dict=True).items()):
        frame = own.select((pl.col("at_ns") + shift_ns).alias("at_ns"), "value")
        yield Values(process=f"{label}{device}", name=str(name), frame=frame)


def _shifted(frame: pl.DataFrame, shift_ns: int) -> pl.DataFrame:
    return frame.with_columns(pl.col("start_ns", "end_ns") + shift_ns)
