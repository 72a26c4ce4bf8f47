"""An imported trace as tracks: its own events as they were, and where each device's time went.

Events keep the categories and details by which profilers' traces are read, so that what we write
can be imported again and gives the same account. One rank's tables are in memory at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.report.perfetto.track import Spans, Values
from fuelline.schema.run.trace import DeviceKind, HostKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuelline.report.perfetto.track import Track
    from fuelline.schema.run.trace import RankFacts
    from fuelline.timeline.trace import Trace

_DEVICE_CATEGORIES = {
    int(DeviceKind.KERNEL): "kernel",
    int(DeviceKind.COMPUTE): "kernel",
    int(DeviceKind.COMMUNICATION): "kernel",
    int(DeviceKind.COPY): "gpu_memcpy",
    int(DeviceKind.SET): "gpu_memset",
}
_HOST_CATEGORIES = {
    int(HostKind.OP): "cpu_op",
    int(HostKind.RUNTIME): "cuda_runtime",
    int(HostKind.ANNOTATION): "user_annotation",
    int(HostKind.PYTHON): "python_function",
    int(HostKind.PROFILER): "overhead",
    int(HostKind.OTHER): "fuelline",
}
"""Categories of Kineto's JSON."""


def draw_trace(
    trace: Trace, parts: dict[tuple[int, int], pl.DataFrame], steps: dict[int, pl.DataFrame]
) -> Iterator[Track]:
    """All ranks: `parts` of the ledger by rank and device, `steps` by rank, all with start and end.

    Every rank's clock is moved to where the file begins.
    """
    starts = [_first_ns(trace, rank) for rank in trace.facts.ranks]
    origin_ns = min((start for start in starts if start is not None), default=0)
    for rank in trace.facts.ranks:
        shift_ns = rank.origin_ns - origin_ns
        process = f"rank {rank.rank}" + (f" on {rank.host}" if rank.host else "")
        if rank.rank in steps:
            named = steps[rank.rank].with_row_index("number")
            frame = named.with_columns(pl.format("step {}", "number").alias("name")).drop("number")
            yield Spans(process=process, name="steps", frame=_moved(frame, shift_ns))
        for (owner, device), pieces in parts.items():
            if owner == rank.rank:
                yield Spans(
                    process=process,
                    name=f"gpu{device}: where the time went",
                    frame=_moved(pieces.rename({"part": "name"}), shift_ns),
                )
        yield from _draw_events(trace, rank, process, shift_ns)


def _first_ns(trace: Trace, rank: RankFacts) -> int | None:
    firsts = [
        part["start_ns"].min()
        for table in ("device", "host")
        for part in trace.parts(table, rank.rank)
        if part.height
    ]
    firsts += [part["at_ns"].min() for part in trace.parts("counters", rank.rank) if part.height]
    known = [int(first) + rank.origin_ns for first in firsts if first is not None]  # type: ignore[arg-type]
    return min(known, default=None)


def _draw_events(trace: Trace, rank: RankFacts, process: str, shift_ns: int) -> Iterator[Track]:
    texts = trace.texts(rank.rank)
    device = _moved(_named(trace.table("device", rank.rank), texts, _DEVICE_CATEGORIES), shift_ns)
    keys = ("device", "stream")
    for (number, stream), own in sorted(
        device.partition_by(keys, as_dict=True).items(), key=lambda entry: str(entry[0])
    ):
        yield Spans(
            process=process, name=f"gpu{number} stream {stream}", frame=_device_details(own)
        )
    host = _moved(_named(trace.table("host", rank.rank), texts, _HOST_CATEGORIES), shift_ns)
    for (thread,), own in sorted(
        host.partition_by("thread", as_dict=True).items(), key=lambda entry: str(entry[0])
    ):
        yield Spans(process=process, name=f"thread {thread}", frame=_host_details(own))
    counters = trace.table("counters", rank.rank)
    for (number, name), own in counters.partition_by("device", "name", as_dict=True).items():
        frame = own.select(pl.col("at_ns") + shift_ns, "value")
        where = "" if number is None else f"gpu{number} "
        yield Values(process=process, name=f"{where}{name}", frame=frame)


def _named(frame: pl.DataFrame, texts: dict[int, str], categories: dict[int, str]) -> pl.DataFrame:
    return frame.with_columns(
        pl.col("name").replace_strict(texts, default="", return_dtype=pl.String),
        pl.col("kind")
        .replace_strict(categories, default="fuelline", return_dtype=pl.String)
        .alias("category"),
    )


def _device_details(frame: pl.DataFrame) -> pl.DataFrame:
    """Details under the names that Kineto gives them."""
    one = pl.lit(1, pl.Int64)
    return frame.select(
        "start_ns",
        "end_ns",
        "name",
        "category",
        "device",
        "stream",
        "correlation",
        pl.col("external").alias("External id"),
        pl.col("size_bytes").alias("bytes"),
        pl.when(pl.col("blocks").is_not_null())
        .then(pl.concat_list("blocks", one, one))
        .alias("grid"),
        pl.when(pl.col("threads").is_not_null())
        .then(pl.concat_list(pl.col("threads").cast(pl.Int64), one, one))
        .alias("block"),
        pl.col("registers").alias("registers per thread"),
        pl.col("shared_bytes").alias("shared memory"),
    )


def _host_details(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(
        "start_ns",
        "end_ns",
        "name",
        "category",
        "correlation",
        pl.col("external").alias("External id"),
    )


def _moved(frame: pl.DataFrame, shift_ns: int) -> pl.DataFrame:
    return frame.with_columns(pl.col("start_ns", "end_ns") + shift_ns)
