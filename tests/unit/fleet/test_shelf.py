"""A store of many small files: whole, damaged, old, foreign."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import polars as pl
import pytest

from fuelline.fleet.shelf import encode_row, find_row, load_rows, place_of, put
from fuelline.schema.diagnosis.fleet import FleetGauge
from fuelline.schema.errors import RefusedError
from tests.unit.fleet.rows import DAY_S, NOW_S, fill, make_run

if TYPE_CHECKING:
    from pathlib import Path


def test_a_row_comes_back_as_it_was(tmp_path: Path) -> None:
    run = make_run(
        batch_id="77",
        rungs={"SMs active": 0.4},
        gauges=[FleetGauge(kind="read latency", place="/data", value=0.01)],
    )
    assert find_row(fill(tmp_path, run), "77") == run


def test_the_same_run_counts_once(tmp_path: Path) -> None:
    store = fill(tmp_path, make_run(seconds=10.0), make_run(seconds=20.0))
    assert load_rows(store, None).frame["seconds"].to_list() == [20.0]


def test_only_months_that_count_are_opened(tmp_path: Path) -> None:
    store = fill(tmp_path, make_run(1), make_run(2, started_s=NOW_S - 400 * DAY_S))
    damaged = tmp_path / "2025-04"
    damaged.mkdir(exist_ok=True)
    (damaged / "x.parquet").write_bytes(b"PAR1")
    assert load_rows(store, NOW_S - DAY_S).frame.height == 1
    assert load_rows(store, NOW_S - DAY_S).skipped == []
    assert load_rows(store, None).frame.height == 2


def test_damaged_files_are_named_and_cost_nothing_else(tmp_path: Path) -> None:
    runs = [make_run(number) for number in range(9)]
    store = fill(tmp_path, *runs)
    cut = tmp_path / place_of(runs[3])
    cut.write_bytes(cut.read_bytes()[:-50])
    foreign = cut.with_name("other.parquet")
    pl.DataFrame({"run_id": [[1, 2]]}).write_parquet(foreign)
    rows = load_rows(store, None)
    assert rows.frame.height == 8
    assert {each.partition(":")[0] for each in rows.skipped} == {str(cut), str(foreign)}


def test_a_row_of_an_older_release_lacks_columns(tmp_path: Path) -> None:
    run = make_run()
    store = fill(tmp_path, run)
    path = tmp_path / place_of(run)
    pl.read_parquet(path).drop("gauges", "joules").write_parquet(path)
    row = load_rows(store, None).frame.row(0, named=True)
    assert row["gauges"] is None
    assert row["run_id"] == run.run_id


def test_a_row_of_a_newer_release_has_more(tmp_path: Path) -> None:
    run = make_run()
    store = fill(tmp_path, run)
    path = tmp_path / place_of(run)
    pl.read_parquet(path).with_columns(moon=pl.lit("full")).write_parquet(path)
    rows = load_rows(store, None)
    assert rows.skipped == []
    assert rows.frame["run_id"].to_list() == [run.run_id]


def test_links_and_huge_files_are_not_read(tmp_path: Path) -> None:
    run = make_run()
    store = fill(tmp_path / "store", run)
    elsewhere = fill(tmp_path / "elsewhere", make_run(5))
    month = (tmp_path / "store" / place_of(run)).parent
    (month / "link.parquet").symlink_to(tmp_path / "elsewhere" / place_of(make_run(5)))
    with (month / "huge.parquet").open("wb") as file:
        file.truncate(1 << 30)
    rows = load_rows(store, None)
    assert elsewhere
    assert rows.frame.height == 1
    assert [each.rpartition("/")[2].partition(":")[0] for each in rows.skipped] == ["huge.parquet"]


def test_files_can_be_read_by_all_who_may_enter_the_store(tmp_path: Path) -> None:
    run = make_run()
    fill(tmp_path, run)
    path = tmp_path / place_of(run)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_draft_that_cannot_be_finished_is_not_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fuelline.fleet.shelf.os.fchmod", refuse)
    with pytest.raises(OSError, match="No space"):
        put(str(tmp_path), "2026-05/x.parquet", encode_row(make_run()))
    assert list((tmp_path / "2026-05").iterdir()) == []


def test_no_such_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="cannot be read"):
        load_rows(str(tmp_path / "nowhere"), None)


def test_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    assert load_rows(str(tmp_path), None).frame.height == 0


def test_a_name_cannot_leave_the_store() -> None:
    place = place_of(make_run(run_id="../../etc/passwd", host="a/../b"))
    assert place.count("/") == 1
    assert ".." not in place
