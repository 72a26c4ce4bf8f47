"""Devices of scrapes: counters without events. They climb the ladder of recorded runs.

Files are joined by host and device, so that a series of scrapes in many files is one series. How
often a counter was read is known; how long the device was watched only if the scrapes carry times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import polars as pl

from fuelline.schema.run.samples import DeviceSeen
from fuelline.signals.devices.devices import measure_devices
from fuelline.timeline import Timeline
from fuelline.timeline.tables import TABLES

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.devices import DeviceFacts
    from fuelline.schema.run.trace import RankFacts
    from fuelline.timeline.trace import Trace

_SECOND_NS = 1_000_000_000
_MEMORY = ("memory.used_bytes", "memory.free_bytes", "memory.reserved_bytes")
_REFUSALS = {
    "processes": "a scrape does not show which job is on a device",
    "gpm": "the exporter does not export it; add the DCGM_FI_PROF_* field to its counters",
    "utilisation": "the exporter does not export DCGM_FI_DEV_GPU_UTIL",
    "throttling": "the exporter does not export it",
}


def is_scrape(trace: Trace) -> bool:
    """Whether a trace is nothing but counters."""
    return {source.format for source in trace.facts.sources} == {"dcgm"}


def measure_scrapes(trace: Trace) -> list[DeviceFacts]:
    """Each device with its readings and its ladder."""
    hosts: dict[str, int] = {}
    frames: list[pl.DataFrame] = []
    seen: dict[str, DeviceSeen] = {}
    for rank in sorted(trace.facts.ranks, key=lambda each: each.rank):
        hosts.setdefault(rank.host, rank.rank)
        frame = _read(trace, rank, len(frames))
        frames.append(frame)
        seen |= {each.device: each for each in _describe(rank, frame)}
    readings = pl.concat(frames)
    timeline = Timeline(
        run=msgspec.structs.replace(
            trace.run,
            started_ns=int(readings["at_ns"].min()),  # type: ignore[arg-type]
            ended_ns=int(readings["at_ns"].max()),  # type: ignore[arg-type]
        ),
        tables={"devices": readings},
        devices=tuple(seen.values()),
    )
    return [
        msgspec.structs.replace(
            facts,
            rank=hosts[facts.device.rpartition("/")[0]],
            device=facts.device.rpartition("/")[2],
        )
        for facts in measure_devices(timeline).devices
    ]


def _read(trace: Trace, rank: RankFacts, place: int) -> pl.DataFrame:
    """Readings of one file; without times they follow those of the files before."""
    later_ns = 0 if rank.settings.get("times") == "recorded" else place * _SECOND_NS
    return (
        trace.table("counters", rank.rank)
        .with_columns(
            pl.col("at_ns") + later_ns,
            pl.format("{}/gpu{}", pl.lit(rank.host), "device").alias("device"),
        )
        .select(pl.col(name).cast(kind) for name, kind in TABLES["devices"].items())
    )


def _describe(rank: RankFacts, frame: pl.DataFrame) -> list[DeviceSeen]:
    memory = frame.filter(pl.col("name").is_in(_MEMORY))
    sizes = dict(
        memory.group_by("device", "at_ns")
        .agg(pl.col("value").sum())
        .group_by("device")
        .agg(pl.col("value").max())
        .iter_rows()
    )
    found = []
    for chip in rank.chips:
        device = f"{rank.host}/gpu{chip.device}"
        found.append(
            DeviceSeen(
                at_ns=0,
                device=device,
                vendor="NVIDIA",
                name=chip.name,
                uuid=rank.settings.get(f"uuid {chip.device}", ""),
                memory_bytes=int(sizes[device]) if sizes.get(device) else None,
                refusals=_REFUSALS,
            )
        )
    return found
