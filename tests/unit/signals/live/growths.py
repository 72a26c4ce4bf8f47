"""Growth made by hand: one training process on a clock in milliseconds."""

from __future__ import annotations

from typing import Any

from fuelline.schema.diagnosis.live import LiveEvent, RunGrowth, SpoolGrowth
from fuelline.schema.wire import Flag, Kind, Phase
from tests.unit.ingest.remains import CREATED_NS, RUN

PID = 4711
MS = 10**6


def at(ms: float) -> int:
    """A moment of the run."""
    return CREATED_NS + int(ms * MS)


def event(
    kind: Kind,
    start_ms: float,
    end_ms: float,
    *,
    owner: int = 1,
    flags: int = Flag.TRAINING,
    tid: int = PID,
    position: int = 5,
    samples: int = 32,
    pause_kind: int = 0,
) -> LiveEvent:
    """One event."""
    return LiveEvent(
        start_ns=at(start_ms),
        dur_ns=int((end_ms - start_ms) * MS),
        owner=owner,
        samples=samples,
        pause_kind=pause_kind,
        position=position,
        tid=tid,
        flags=int(flags),
        kind=int(kind),
    )


def spool(*events: LiveEvent, phase: Phase = Phase.COMPUTE, **more: Any) -> SpoolGrowth:
    """What the process wrote."""
    usual = {"pid": PID, "trainer_tid": PID, "stopped_errno": 0, "is_alive": True}
    return SpoolGrowth(
        **{**usual, "phase": int(phase), "is_counted": True, "events": list(events), **more}
    )


def growth(*spools: SpoolGrowth, now_ms: float = 1000, **more: Any) -> RunGrowth:
    """What a look brought."""
    usual: dict[str, Any] = {"run": RUN, "state": "running"}
    return RunGrowth(**{**usual, "now_ns": at(now_ms), "spools": list(spools), **more})


def steps(count: int, *, length_ms: float = 100, wait_ms: float = 40) -> list[LiveEvent]:
    """Steps that wait, run backward and step; 10 ms of loop stand between them."""
    rows = []
    for number in range(count):
        start = number * length_ms
        rows += [
            event(Kind.WAIT, start, start + wait_ms),
            event(Kind.BACKWARD, start + wait_ms + 20, start + length_ms - 20),
            event(Kind.STEP, start + length_ms - 15, start + length_ms - 10),
        ]
    return rows
