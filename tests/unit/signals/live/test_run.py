"""The snapshot of a run: host, ranks, workers, what could not be seen."""

from __future__ import annotations

import msgspec
import pytest

from fuelline.schema.diagnosis.live import SourceWorker
from fuelline.schema.run.recording import Blindspot
from fuelline.schema.run.samples import HostSample, Limits, OtherProcess, ThreadState
from fuelline.schema.wire import Kind
from fuelline.signals.live import LiveRun
from tests.unit.ingest.remains import RUN
from tests.unit.signals.live.growths import PID, at, event, growth, spool, steps


def host(second: int, **values: float) -> HostSample:
    named = {name.replace("__", ".").replace("_C_", ":"): value for name, value in values.items()}
    return HostSample(at(second * 1000), named)


def test_counters_become_rates() -> None:
    rows = [
        host(0, job__cpu_ns=0, psi__io__some_us=0, net__eth0__rx_bytes=0, net__lo__rx_bytes=0),
        host(1, disk__8_C_0__read_bytes=0, disk__8_C_16__read_bytes=0),
        host(5, disk__8_C_0__read_bytes=400, disk__8_C_16__read_bytes=800),
        host(10, job__cpu_ns=15e9, psi__io__some_us=4e6, net__lo__rx_bytes=9e9),
        host(10, net__eth0__rx_bytes=100),
        Limits(at(0), 8, 16, 2.5, None, {}),
        OtherProcess(at(0), 1, 1, "x", 1, 1, 1, 1, 0),
    ]
    line = LiveRun(growth(rows=rows)).snapshot(workers=False).host
    assert line.cores_used == pytest.approx(1.5)
    assert line.cores_allowed == 2.5
    assert line.io_pressure_frac == pytest.approx(0.4)
    assert line.disk_read_bytes_per_s == pytest.approx(300)
    assert line.net_in_bytes_per_s == pytest.approx(10)
    assert line.disk_write_bytes_per_s is None
    assert line.cpu_pressure_frac is None


def test_a_counter_that_is_not_told_again_has_not_moved() -> None:
    rows = [host(0, psi__io__some_us=5, psi__cpu__some_us=0)]
    rows += [host(second, psi__cpu__some_us=second * 1e5) for second in range(1, 31)]
    line = LiveRun(growth(rows=rows)).snapshot(workers=False).host
    assert line.io_pressure_frac == 0
    assert line.cpu_pressure_frac == pytest.approx(0.1)


def test_what_was_told_before_we_came_takes_its_place_when_it_arrives() -> None:
    live = LiveRun(growth(rows=[host(29, psi__cpu__some_us=1e5), host(30, psi__cpu__some_us=2e5)]))
    live.add(growth(rows=[host(3, psi__io__some_us=7), host(2, psi__io__some_us=6)]))
    line = live.snapshot(workers=False).host
    assert line.io_pressure_frac == 0
    assert line.cpu_pressure_frac == pytest.approx(0.1)


def test_one_reading_is_no_rate() -> None:
    line = LiveRun(growth(rows=[host(1, job__cpu_ns=5)])).snapshot(workers=False).host
    assert line.cores_used is None


def worker(number: int, pid: int, loader: int = 1) -> SourceWorker:
    return SourceWorker(source_id=loader, worker_id=number, pid=pid)


def test_workers_are_those_that_live_or_did_something() -> None:
    """A loader that starts its workers anew names the same numbers again: the last ones count."""
    trainer = spool(*steps(3), workers=[worker(0, 10), worker(1, 11), worker(2, 12)])
    fetched = [event(Kind.FETCH, 0, 80), event(Kind.FETCH, 100, 140), event(Kind.GC, 0, 1)]
    live = LiveRun(
        growth(
            trainer,
            spool(*fetched, pid=11, trainer_tid=0, is_alive=False),
            spool(pid=12, trainer_tid=0, is_alive=True),
            spool(pid=20, trainer_tid=0, is_alive=False),
            rows=[ThreadState(at(0), PID, PID, 1, "running", "", 0, 3)],
        )
    )
    live.add(growth(spool(workers=[worker(0, 20)])))
    (row,) = live.snapshot(workers=True).ranks
    own, first, second = row.workers
    assert (own.worker_id, own.pid, own.mix[0].part) == (None, PID, "running")
    assert (first.pid, first.fetch_s) == (11, pytest.approx(0.06))
    assert (second.pid, second.fetch_s, second.mix) == (12, None, [])
    assert live.snapshot(workers=False).ranks[0].workers == []


def test_fetches_of_long_ago_are_not_averaged() -> None:
    live = LiveRun(growth(spool(*steps(1), workers=[worker(0, 11)])))
    live.add(growth(spool(event(Kind.FETCH, 0, 80), pid=11, trainer_tid=0), now_ms=100))
    live.add(growth(now_ms=60_000))
    (row,) = live.snapshot(workers=True).ranks
    assert row.workers[1].fetch_s is None


def test_the_snapshot_says_how_long_the_run_goes_on_and_what_is_not_seen() -> None:
    running = msgspec.structs.replace(RUN, ended_ns=None)
    spot = Blindspot(what="a", why="b", forbids="c")
    hidden = spool(event(Kind.WAIT, 0, 5, tid=99), event(Kind.STEP, 5, 6))
    live = LiveRun(growth(hidden, run=running, blindspots=[spot], now_ms=5000))
    shown = live.snapshot(workers=False)
    assert shown.run_s == 5
    assert [spot.what for spot in shown.blindspots] == [
        "a",
        f"how long process {PID} waits for input",
    ]
    ended = LiveRun(growth(state="ended", now_ms=5000)).snapshot(workers=False)
    assert ended.run_s == 60
