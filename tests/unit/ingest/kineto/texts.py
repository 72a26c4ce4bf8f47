"""Small Kineto traces for tests, in every layout, and the real ones where they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fuelline.ingest import find_sources, import_trace, load_trace
from fuelline.schema.run.recording import RunFacts
from tests.unit.ingest.foreign.reading import TRACES

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.timeline.trace import Trace

REAL = TRACES / "kineto"
"""Published traces of real accelerators; never part of the project."""
RUN = RunFacts(run_id="test", command=[], host="here", started_wall_ns=0, started_ns=0)
CHIP = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108, "warpSize": 32}


def kernel(ts: float, dur: float, correlation: int = 0, name: str = "gemm", **args: Any) -> Any:
    values = {"device": 0, "stream": 7, "correlation": correlation, "grid": [54, 1, 1]}
    values |= {"block": [128, 1, 1], "est. achieved occupancy %": 25, **args}
    return _event("kernel", name, ts, dur, 0, 7, values)


def call(ts: float, dur: float, correlation: int = 0, name: str = "cudaLaunchKernel") -> Any:
    return _event("cuda_runtime", name, ts, dur, 1, 1, {"correlation": correlation})


def op(ts: float, dur: float, name: str = "aten::mm", **args: Any) -> Any:
    return _event("cpu_op", name, ts, dur, 1, 1, args)


def mark(ts: float, dur: float, name: str) -> Any:
    return _event("user_annotation", name, ts, dur, 1, 1, {})


def _event(  # noqa: PLR0917
    cat: str, name: str, ts: float, dur: float, pid: int, tid: int, args: Any
) -> Any:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def document(events: list[Any], **said: Any) -> dict[str, Any]:
    return {"schemaVersion": 1, "deviceProperties": [CHIP], **said, "traceEvents": events}


LAYOUTS = {
    "kineto": lambda events: ",\n  ".join(json.dumps(each, indent=1) for each in events),
    "spaced": lambda events: ", ".join(json.dumps(each) for each in events),
    "tight": lambda events: ",".join(json.dumps(each, separators=(",", ":")) for each in events),
}


def lay_out(events: list[Any], layout: str, footer: str = "") -> bytes:
    head = '\n{\n  "schemaVersion": 1,\n  "deviceProperties": ' + json.dumps([CHIP])
    return f'{head},\n  "traceEvents": [{LAYOUTS[layout](events)}\n  ]{footer}}}\n'.encode()


def write(path: Path, events: list[Any], **said: Any) -> Path:
    path.write_text(json.dumps(document(events, **said)))
    return path


def load(tmp_path: Path, *paths: Path, partial: bool = False, jobs: int | None = None) -> Trace:
    run_dir = tmp_path / f"run{len(list(tmp_path.glob('run*')))}"
    import_trace(find_sources(paths), run_dir, RUN, partial=partial, jobs=jobs)
    return load_trace(run_dir)
