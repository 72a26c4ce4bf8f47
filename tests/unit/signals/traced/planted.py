"""Traces with a known truth, built in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from fuelline.schema.run.recording import RunFacts
from fuelline.schema.run.trace import ChipFacts, DeviceKind, HostKind, RankFacts, TraceFacts
from fuelline.timeline.trace import Trace, in_memory

RUN = RunFacts(run_id="planted", command=[], host="here", started_wall_ns=0, started_ns=0)
US = 1000


@dataclass
class Rank:
    """One rank's events, in microseconds."""

    rank: int = 0
    world_size: int | None = None
    origin_ns: int = 0
    device: list[dict[str, Any]] = field(default_factory=list)
    host: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    ops: list[dict[str, Any]] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    launches: int = 0

    def kernel(
        self,
        start: float,
        end: float,
        name: str = "gemm",
        *,
        called: float | None = None,
        **more: Any,
    ) -> None:
        """A kernel; with `called`, the launching call returned then."""
        row = {"device": 0, "stream": 7, "kind": int(DeviceKind.KERNEL), "blocks": 54, **more}
        if called is not None:
            self.launches += 1
            row["correlation"] = self.launches
            self.call(called - 2, called, "cudaLaunchKernel", correlation=self.launches)
        self.device.append({**self._span(start, end, name), **row})

    def call(self, start: float, end: float, name: str, **more: Any) -> None:
        self.host.append(
            {**self._span(start, end, name), "thread": 1, "kind": int(HostKind.RUNTIME), **more}
        )

    def op(self, start: float, end: float, name: str = "aten::mm", kind: int = 1) -> None:
        self.host.append({**self._span(start, end, name), "thread": 1, "kind": kind})

    def work(
        self, start: float, end: float, external: int, flops: float, least_bytes: float
    ) -> None:
        """An operator whose shapes tell its work."""
        row = {"external": external, "flops": flops, "least_bytes": least_bytes}
        self.ops.append({**self._span(start, end, "aten::mm"), **row})

    def step(self, number: int, start: float, end: float) -> None:
        self.steps.append({"step": number, **self._span(start, end, "")})

    def _span(self, start: float, end: float, name: str) -> dict[str, Any]:
        number = self.names.setdefault(name, len(self.names))
        return {"start_ns": round(start * US), "end_ns": round(end * US), "name": number}


def build(*ranks: Rank) -> Trace:
    facts = TraceFacts(
        ranks=[
            RankFacts(
                rank=each.rank,
                world_size=each.world_size,
                origin_ns=each.origin_ns,
                chips=[ChipFacts(device=0, name="NVIDIA A100-SXM4-80GB", sm_count=108)],
            )
            for each in ranks
        ]
    )
    frames: dict[tuple[str, int], pl.DataFrame] = {}
    for each in ranks:
        rows = {"device": each.device, "host": each.host, "steps": each.steps, "ops": each.ops}
        for table, listed in rows.items():
            if listed:
                frames[table, each.rank] = pl.DataFrame(listed, infer_schema_length=None)
        frames["names", each.rank] = pl.DataFrame(
            {"name": list(each.names.values()), "text": list(each.names)},
            schema={"name": pl.UInt32, "text": pl.String},
        )
    return in_memory(RUN, facts, frames)
