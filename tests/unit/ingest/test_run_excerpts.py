"""Of a run with very many ranks the same moments of every host are judged."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import msgspec
import polars as pl
import pytest

from fuelline.ingest.recording import run_excerpts as room
from fuelline.ingest.recording.hosts import Hosts
from fuelline.ingest.recording.run_excerpts import ExcerptShare, choose_share, take_share
from fuelline.schema.run.recording import Excerpts
from fuelline.schema.wire import Kind
from fuelline.timeline import Timeline
from fuelline.timeline.tables import TABLES
from tests.unit.ingest.remains import CREATED_NS, RUN, record, write_run

if TYPE_CHECKING:
    from pathlib import Path

STEP_NS = 10**7
STEPS = 2000
SHARE = ExcerptShare(parts=4, records=99, period_ns=1 << 30)


def _records() -> list[bytes]:
    return [
        record(Kind.STEP, 1, -1, start_ns=CREATED_NS + step * STEP_NS, dur_ns=STEP_NS // 2)
        for step in range(STEPS)
    ]


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four hosts, whose clocks differ, with twice the records that are judged."""
    monkeypatch.setattr(room, "MOST_RECORDS_OF_RUN", 2 * STEPS)
    for number in range(4):
        shifted = msgspec.structs.replace(RUN, started_wall_ns=RUN.started_wall_ns + number)
        write_run(tmp_path / f"node-{number}", run=shifted, records=_records())
    return tmp_path


def test_all_hosts_together_have_bounded_records(many: Path) -> None:
    for _ in range(2):  # raw, and compacted
        timelines = list(Hosts(many))
        kept = [timeline.table("events").height for timeline in timelines]
        assert sum(kept) <= 2 * STEPS * 1.1
        assert min(kept) > STEPS // 4
        rhythms = {
            (each.excerpts.period_ns, each.excerpts.kept_ns) for each in timelines if each.excerpts
        }
        assert len(rhythms) == 1
        assert all(any("% of the run" in b.what for b in each.blindspots) for each in timelines)


def test_a_run_that_fits_is_judged_whole(tmp_path: Path) -> None:
    write_run(tmp_path / "node-0")
    assert choose_share([tmp_path / "node-0"]) is None
    (timeline,) = Hosts(tmp_path)
    assert timeline.excerpts is None


def _timeline(excerpts: Excerpts | None) -> Timeline:
    begins = [CREATED_NS + step * STEP_NS for step in range(STEPS)]
    if excerpts is not None:
        begins = [excerpts.fold(at) for at in begins if excerpts.unfold(excerpts.fold(at)) == at]
    rows = [(1, 1, int(Kind.FETCH), 0, at, 5, 0, 0, 0, 0, 0) for at in begins]
    events = pl.DataFrame(rows, schema=dict(TABLES["events"]), orient="row")
    return Timeline(run=RUN, tables={"events": events}, excerpts=excerpts)


@pytest.mark.parametrize("parts", [4, 16])
def test_excerpts_of_excerpts_are_moments_of_the_run(parts: int) -> None:
    wall_offset_ns = RUN.started_wall_ns - RUN.started_ns
    period_ns = 1 << 28
    first_ns = CREATED_NS - (CREATED_NS + wall_offset_ns) % period_ns
    before = Excerpts(first_ns=first_ns, period_ns=period_ns, kept_ns=1 << 27, records=1)
    taken = take_share(_timeline(before), dataclasses.replace(SHARE, parts=parts))
    after = taken.excerpts
    assert after is not None
    assert after.kept_frac == before.kept_frac / parts
    assert (after.first_ns + wall_offset_ns) % after.period_ns == 0
    found = [after.unfold(at) for at in taken.table("events")["start_ns"]]
    assert found
    assert all((at - CREATED_NS) % STEP_NS == 0 for at in found)
    assert all((at - after.first_ns) % after.period_ns < after.kept_ns for at in found)
