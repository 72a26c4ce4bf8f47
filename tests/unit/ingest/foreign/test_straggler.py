from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from fuelline.ingest.straggler import StragglerTraces
from fuelline.schema.errors import InputError
from fuelline.schema.run.trace import DeviceKind
from tests.unit.ingest.foreign.reading import read, real

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id")
ROWS = [
    (0, 0, 0, 4, "forward-compute", 0.5, 1.0, 0),
    (0, 0, 0, 4, "forward-send", 1.5, 0.25, 0),
    (0, 1, 1, 4, "forward-recv", 0.5, 1.25, 0),
    (0, 1, 1, 4, "gc", 1.75, 0.25, 0),
    (0, 0, 0, 9, "forward-compute", 0.0, 1.0, 0),
    (0, 1, 1, 9, "forward-recv", 0.0, 2.0, 0),
]


def made(tmp_path: Path, rows: list[tuple[Any, ...]], columns: tuple[str, ...] = COLUMNS) -> Path:
    path = tmp_path / "ops"
    pl.DataFrame(rows, schema=columns, orient="row", strict=False).write_parquet(path)
    return path


def test_steps_are_laid_end_to_end(tmp_path: Path) -> None:
    result = read(StragglerTraces(), made(tmp_path, ROWS))
    seconds = result.table("steps").with_columns(pl.col("start_ns", "end_ns") / 1e9)
    assert seconds.rows() == [(4, 0.0, 1.5), (9, 1.5, 3.5)]
    assert (result.table("device", 1)["start_ns"] / 1e9).to_list() == [0.0, 1.5]


def test_a_send_and_its_receive_meet_in_one_group_with_one_number(tmp_path: Path) -> None:
    result = read(StragglerTraces(), made(tmp_path, ROWS))
    sends = result.table("device", 0).filter(text="forward-pp-comm")
    receives = result.table("device", 1).filter(text="forward-pp-comm")
    assert sends["group"][0] == receives["group"][0]
    assert sends["sequence"][0] == receives["sequence"][0] != receives["sequence"][1]
    assert sends["kind"].to_list() == [DeviceKind.COMMUNICATION]


def test_computing_meets_nobody_and_collection_is_the_hosts(tmp_path: Path) -> None:
    result = read(StragglerTraces(), made(tmp_path, ROWS))
    computes = result.table("device", 0).filter(text="forward-compute")
    assert computes["group"].null_count() == computes["sequence"].null_count() == 2
    assert result.table("host", 1)["text"].to_list() == ["gc"]


def test_ranks_know_their_stage_and_replica(tmp_path: Path) -> None:
    imported = read(StragglerTraces(), made(tmp_path, ROWS)).imported
    assert imported is not None
    assert [rank.settings for rank in imported.ranks] == [
        {"stage": "0", "dp_rank": "0"},
        {"stage": "1", "dp_rank": "0"},
    ]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("rank", -1),
        ("stage", None),
        ("start_ts", float("nan")),
        ("duration", float("inf")),
        ("step", None),
        ("optype", None),
        ("optype", "x" * 100_000),  # found by fuzzing: 50 kB of them grew to 650 MB
        ("seq_id", 1 << 40),
        ("start_ts", "soon"),
    ],
)
def test_a_row_that_cannot_be_is_refused_with_its_number(
    tmp_path: Path, column: str, value: object
) -> None:
    bad = dict(zip(COLUMNS, ROWS[0], strict=True)) | {column: value}
    path = tmp_path / "ops"
    cells = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
    if isinstance(value, str):
        cells = [cell | {column: str(cell[column])} for cell in cells]
    pl.DataFrame([*cells, bad]).write_parquet(path)
    with pytest.raises(InputError, match=f"ops, row {len(ROWS)} .*: .*{column}="):
        read(StragglerTraces(), path)


def test_a_negative_duration_is_left_out_and_said(tmp_path: Path) -> None:
    result = read(
        StragglerTraces(), made(tmp_path, [*ROWS, (0, 0, 0, 9, "optimizer", 1.0, -0.5, 0)])
    )
    assert result.imported is not None
    assert "insane" in [each.code for each in result.imported.quality]
    assert "optimizer" not in result.table("device", 0)["text"].to_list()


def test_a_trace_without_one_sane_operation_is_refused(tmp_path: Path) -> None:
    rows = [(*row[:6], -1.0, row[7]) for row in ROWS]
    with pytest.raises(InputError, match="all of its 6 operations"):
        read(StragglerTraces(), made(tmp_path, rows))


def test_another_parquet_file_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path, [(1, 2)], ("user", "price"))
    with pytest.raises(InputError, match=r"at byte \d+, lacks the columns dp_rank, duration"):
        read(StragglerTraces(), path)


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    data = made(tmp_path, ROWS).read_bytes()
    path = tmp_path / "cut"
    for size in range(4, len(data), 101):
        path.write_bytes(data[:size])
        with pytest.raises(
            InputError, match=f"cut: not a whole Parquet file, read to byte {size} "
        ):
            read(StragglerTraces(), path)


@pytest.mark.parametrize("name", ["AR", "ST"])
def test_totals_of_real_traces_are_those_of_the_table(name: str) -> None:
    path = real(f"straggler/trace-{name}.parquet")
    result = read(StragglerTraces(), path)
    rows = pl.read_parquet(path)
    assert result.imported is not None
    for rank in result.imported.source.ranks:
        own = rows.filter(pl.col("rank") == rank)
        gc = own.filter(pl.col("optype").cast(pl.String) == "gc")
        assert result.table("device", rank).height == own.height - gc.height
        assert result.table("host", rank).height == gc.filter(pl.col("duration") > 0).height
        seconds = (result.table("device", rank).select(pl.col("end_ns") - pl.col("start_ns"))) / 1e9
        total = own["duration"].cast(pl.Float64).sum() - gc["duration"].sum()
        assert seconds["end_ns"].sum() == pytest.approx(total, rel=1e-6)
