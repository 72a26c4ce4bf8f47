"""Of a recording with very many records excerpts are kept: in proportion, and it is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import polars as pl
import pytest

from fuelline import pipeline
from fuelline.ingest.recording import excerpts as room
from fuelline.ingest.recording import spool as spool_room
from fuelline.ingest.recording.excerpts import Pace, choose_excerpts, choose_rows, cut_events
from fuelline.ingest.recording.folder import compact_recording, load_recording
from fuelline.schema import wire
from fuelline.schema.run.journal import encode_frame
from fuelline.schema.run.recording import MANIFEST_FILE, RUN_FILE, SPOOL_DIR, Excerpts, Manifest
from fuelline.schema.run.samples import JOURNAL_NAME, ThreadClock, ThreadState
from fuelline.schema.wire import Flag, Kind
from fuelline.timeline import Timeline
from fuelline.timeline.tables import TABLES
from tests.unit.ingest.remains import RUN, header, spool

if TYPE_CHECKING:
    from pathlib import Path

TENTHS = Excerpts(first_ns=1000, period_ns=100, kept_ns=10, records=1)
PID = 4711
MS = 10**6
STEPS = 20_000
STEP_NS = MS
PARTS_NS = {"input": 200_000, "forward": 300_000, "backward": 350_000, "loop": 100_000}
SAVES = 4
SAVE_NS = 1_500 * MS


def _events(*rows: tuple[int, int, int]) -> pl.DataFrame:
    """Of kind, start and duration."""
    filled = [(PID, PID, kind, 0, start, dur, 8, 8, 8, 8, 8) for kind, start, dur in rows]
    return pl.DataFrame(filled, schema=dict(TABLES["events"]), orient="row").with_row_index("at")


def _keep(*rows: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    events = _events(*rows)
    chosen = events[choose_rows(events, TENTHS)].drop("at")
    cut = cut_events(chosen, TENTHS)
    return cut.select("kind", "start_ns", "dur_ns").rows()


def test_the_clock_runs_only_in_excerpts_and_can_be_turned_back() -> None:
    assert [TENTHS.fold(at) for at in (500, 1000, 1007, 1010, 1099, 1100, 1105)] == [
        500, 1000, 1007, 1010, 1010, 1010, 1015,
    ]  # fmt: skip
    assert [TENTHS.unfold(at) for at in (500, 1007, 1015)] == [500, 1007, 1105]


def test_a_run_ended_on_the_clock_of_its_excerpts() -> None:
    run = msgspec.structs.replace(RUN, ended_ns=1105)
    assert Timeline(run=run, tables={}).ended_ns == 1105
    assert Timeline(run=run, tables={}, excerpts=TENTHS).ended_ns == 1015


def test_a_wait_over_several_excerpts_lasts_as_long_in_each_of_them() -> None:
    assert (Kind.WAIT, 1005, 25) in _keep((Kind.WAIT, 1005, 295))  # 5, 10 and 10


def test_what_lies_between_two_excerpts_is_left_out() -> None:
    assert len(_keep(*((Kind.SYNC, 1000 + 5 * n, 4) for n in range(60)))) == 2 * 3


def test_what_stands_beside_a_long_gap_is_kept_to_tell_what_the_gap_was() -> None:
    kept = _keep((Kind.WAIT, 1050, 5), (Kind.BACKWARD, 1250, 5))
    assert kept == [(Kind.WAIT, 1010, 1), (Kind.BACKWARD, 1030, 1)]  # two excerpts of it between


def test_fetches_of_workers_are_kept_whole_or_not_at_all() -> None:
    assert _keep((Kind.FETCH, 1005, 295), (Kind.FETCH, 1050, 100)) == [(Kind.FETCH, 1005, 295)]


def test_workers_and_starts_of_epochs_are_kept_wherever_they_stand() -> None:
    kinds = {kind for kind, *_ in _keep((Kind.WORKER, 1050, 0), (Kind.SOURCE_START, 1060, 5))}
    assert kinds == {Kind.WORKER, Kind.SOURCE_START}


def test_a_collective_that_was_entered_before_an_excerpt_is_not_matched() -> None:
    events = _events((Kind.COLLECTIVE, 1095, 10), (Kind.COLLECTIVE, 1106, 2)).drop("at")
    assert cut_events(events, TENTHS)["d"].to_list() == [-1, 8]


def test_few_records_are_all_kept() -> None:
    pace = Pace(
        most=room.MOST_RECORDS, together=room.MOST_RECORDS, moments_ns=range(0, 10**9, 10**6)
    )
    assert choose_excerpts(pace, 0) is None


def test_excerpts_follow_the_busy_time_of_a_job_that_slept_for_hours() -> None:
    busy = [10**13 + n * 200 * MS for n in range(1000)]
    pace = Pace(most=4_000_000, together=4_000_000, moments_ns=[0, *busy])
    found = choose_excerpts(pace, 0)
    assert found is not None
    assert found.kept_frac == 1 / 8
    assert found.period_ns < 10**9


def test_hosts_whose_clocks_differ_keep_the_same_moments() -> None:
    moments = [5 * 10**12 + n * 10**9 for n in range(1000)]
    ahead = 123_456_789_012
    one = choose_excerpts(Pace(10**6, 10**6, moments), ahead)
    other = choose_excerpts(Pace(10**6, 10**6, [each + ahead for each in moments]), 0)
    assert one is not None
    assert other is not None
    assert other.first_ns - one.first_ns == ahead
    assert (one.period_ns, one.kept_ns) == (other.period_ns, other.kept_ns)


def _write_run(folder: Path) -> Path:
    """A run of 26 s: steps of a millisecond, the second half with a longer wait, four saves."""
    records, at = [], RUN.started_ns + 10**9

    def add(kind: Kind, start_ns: int, dur_ns: int, *fields: int, flags: int = 0) -> None:
        padded = (*fields, *(0,) * (5 - len(fields)))
        records.append(wire.RECORD.pack(start_ns, dur_ns, *padded, PID, flags, int(kind)))

    for step in range(STEPS):
        wait_ns = PARTS_NS["input"] * (3 if step >= STEPS // 2 else 1)
        add(Kind.WAIT, at, wait_ns, 1, 4, -1, -1, step + 1, flags=Flag.TRAINING)
        at += wait_ns + PARTS_NS["forward"]
        add(Kind.BACKWARD, at, PARTS_NS["backward"], 0, -1)
        at += PARTS_NS["backward"] + 50_000
        add(Kind.STEP, at, 0, 1)
        at += PARTS_NS["loop"]
        if step % (STEPS // SAVES) == STEPS // SAVES // 2:
            add(Kind.PAUSE, at, SAVE_NS, 10**6)
            at += SAVE_NS
    (folder / SPOOL_DIR).mkdir(parents=True)
    written = spool(*records, front=header(pid=PID))
    (folder / SPOOL_DIR / f"{PID}-1.spool").write_bytes(written)
    run = msgspec.structs.replace(RUN, ended_ns=at + 10**9)
    (folder / RUN_FILE).write_bytes(msgspec.json.encode(run))
    seconds = range((at - RUN.started_ns) // 10**9)
    clocks = [
        ThreadClock(RUN.started_ns + s * 10**9, PID, PID, s * 8 * 10**8, s * 10**8) for s in seconds
    ]
    states = [
        ThreadState(RUN.started_ns + s * 10**9, PID, PID, 2, "running", "", 0, 20) for s in seconds
    ]
    (folder / JOURNAL_NAME).write_bytes(encode_frame([*clocks, *states]))
    return folder


def _lower_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_RECORDS", 10_000)
    monkeypatch.setattr(room, "EXCERPTS", 32)


@pytest.fixture
def long_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of which an eighth is kept."""
    _lower_limits(monkeypatch)
    return _write_run(tmp_path / "long")


@pytest.fixture
def whole_run(tmp_path: Path) -> Path:
    """The same, of which all is kept."""
    return _write_run(tmp_path / "whole")


def test_excerpts_have_the_budget_the_steps_and_the_verdict_of_the_whole(
    whole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pipeline.diagnose_run(whole_run)
    _lower_limits(monkeypatch)
    told = pipeline.diagnose_run(_write_run(tmp_path / "long"))
    shares = {part.part: part.share for part in told.budget}
    for part in whole.budget:
        assert shares.get(part.part, 0.0) == pytest.approx(part.share, abs=0.015), part.part
    assert told.verdict.code == whole.verdict.code
    assert told.steps is not None
    assert whole.steps is not None
    assert told.steps.count == pytest.approx(whole.steps.count, rel=0.03)
    assert told.steps.mean == pytest.approx(whole.steps.mean, rel=0.03)
    assert told.window is not None
    assert whole.window is not None
    assert told.window.seconds == pytest.approx(whole.window.seconds, rel=0.02)


def test_a_report_says_that_excerpts_were_judged(long_run: Path) -> None:
    spots = pipeline.diagnose_run(long_run).blindspots
    (spot,) = (spot for spot in spots if "of the run, in short stretches" in spot.what)
    assert spot.what.startswith("88 %")
    assert "60,004 records" in spot.why


def test_counters_of_the_observer_go_with_the_time_that_was_kept(
    long_run: Path, whole_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = pipeline.measure_run(long_run)
    monkeypatch.setattr(room, "MOST_RECORDS", 10**6)
    whole = pipeline.measure_run(whole_run)
    assert told.compute.core_wait_share.value == pytest.approx(
        whole.compute.core_wait_share.value, rel=0.1
    )


def test_a_compacted_run_of_excerpts_reads_as_before_and_is_refused_by_older_readers(
    long_run: Path,
) -> None:
    first = pipeline.diagnose_as_json(long_run)
    manifest = msgspec.json.decode((long_run / MANIFEST_FILE).read_bytes(), type=Manifest)
    assert manifest.version == 2
    assert manifest.excerpts is not None
    assert pipeline.diagnose_as_json(long_run) == first
    assert load_recording(long_run).kept_frac == 1 / 8


def test_records_that_crowd_into_one_moment_are_not_all_kept(
    long_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_room, "MOST_KEPT", 5000)
    spots = pipeline.diagnose_run(long_run).blindspots
    assert any(spot.why.startswith("damaged") for spot in spots)
    assert load_recording(long_run).table("events").height == 5000


def test_a_spool_beyond_what_the_recorder_writes_is_refused_unread(whole_run: Path) -> None:
    (spool,) = (whole_run / SPOOL_DIR).iterdir()
    with spool.open("r+b") as file:
        file.truncate(2 * wire.CAP_BYTES + 1)
    (spot, *_) = load_recording(whole_run).blindspots
    assert "that a spool may have" in spot.why


def test_a_run_that_is_kept_whole_is_read_by_older_readers(whole_run: Path) -> None:
    compact_recording(whole_run)
    manifest = msgspec.json.decode((whole_run / MANIFEST_FILE).read_bytes(), type=Manifest)
    assert manifest.version == 1
    assert manifest.excerpts is None
