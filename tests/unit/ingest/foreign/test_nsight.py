from __future__ import annotations

import gzip
import sqlite3
from typing import TYPE_CHECKING

import pytest

from fuelline.ingest.name_book import MOST_CHARACTERS
from fuelline.ingest.nsight import Nsight
from fuelline.schema.errors import InputError
from fuelline.schema.run.trace import CopyDirection, DeviceKind, HostKind
from tests.unit.ingest.foreign.nsight_maker import (
    COPY,
    GRAPH,
    KERNEL,
    NVTX,
    OWNER,
    TABLES,
    make,
)
from tests.unit.ingest.foreign.reading import Read, busy_share, read, real

if TYPE_CHECKING:
    from pathlib import Path


def facts(result: Read) -> list[str]:
    assert result.imported is not None
    return [each.code for each in result.imported.quality]


def test_each_process_with_a_device_is_a_rank(tmp_path: Path) -> None:
    result = read(Nsight(), make(tmp_path / "a"))
    assert result.imported is not None
    assert [rank.pid for rank in result.imported.ranks] == [111, 112]
    assert result.table("device", 0)["start_ns"].to_list() == [100, 210]
    assert result.table("device", 1)["start_ns"].to_list() == [300]


def test_kernels_have_their_launch_and_names(tmp_path: Path) -> None:
    kernel = read(Nsight(), make(tmp_path / "a")).table("device").row(0, named=True)
    assert kernel["text"] == "void gemm<float>(int)"
    assert (kernel["blocks"], kernel["threads"]) == (20, 256)
    assert (kernel["registers"], kernel["shared_bytes"]) == (32, 1040)
    assert (kernel["correlation"], kernel["kind"]) == (11, DeviceKind.KERNEL)


def test_copies_are_named_after_where_they_go(tmp_path: Path) -> None:
    copy = read(Nsight(), make(tmp_path / "a")).table("device").row(1, named=True)
    assert (copy["text"], copy["size_bytes"]) == ("Memcpy HtoD", 4096)
    assert copy["direction"] == CopyDirection.HOST_TO_DEVICE


def test_a_call_is_counted_once_and_loses_its_version(tmp_path: Path) -> None:
    host = read(Nsight(), make(tmp_path / "a")).table("host")
    calls = host.filter(kind=int(HostKind.RUNTIME))
    assert calls.select("text", "start_ns").rows() == [("cudaLaunchKernel", 90)]


def test_a_name_too_long_to_be_one_is_not_searched_for_a_version(tmp_path: Path) -> None:
    """Found by fuzzing: 5,800 names of 100,000 letters took half a minute to search."""
    long = "x" * (MOST_CHARACTERS + 1) + "_v2"
    strings = TABLES["StringIds"]
    path = make(tmp_path / "a", StringIds=(strings[0], [*strings[1][:2], (3, long)]))
    (call,) = read(Nsight(), path).table("host").filter(kind=int(HostKind.RUNTIME))["text"]
    assert call.startswith("x" * MOST_CHARACTERS)
    assert f"{len(long)} characters" in call


def test_operators_are_told_from_annotations_and_marks_have_no_length(tmp_path: Path) -> None:
    host = read(Nsight(), make(tmp_path / "a")).table("host").sort("start_ns")
    ranges = host.filter(host["kind"].is_in([HostKind.OP, HostKind.ANNOTATION]))
    assert ranges.select("text", "kind").rows() == [
        ("step", HostKind.ANNOTATION),
        ("aten::view", HostKind.OP),
    ]


def test_the_chip_is_described(tmp_path: Path) -> None:
    result = read(Nsight(), make(tmp_path / "a"))
    assert result.imported is not None
    chip = result.imported.ranks[0].chips[0]
    assert (chip.name, chip.sm_count, chip.max_threads_per_sm) == ("NVIDIA H100", 132, 2048)


def test_metadata_may_have_its_older_name(tmp_path: Path) -> None:
    path = make(
        tmp_path / "a",
        META_DATA_EXPORT=None,
        EXPORT_META_DATA=("name TEXT, value TEXT", [("EXPORT_PRODUCT_VERSION", "2022.2")]),
    )
    result = read(Nsight(), path)
    assert result.imported is not None
    assert result.imported.ranks[0].settings["product"] == "2022.2"


def test_one_process_takes_the_rank_that_mpi_gave_it(tmp_path: Path) -> None:
    path = make(
        tmp_path / "a",
        CUPTI_ACTIVITY_KIND_KERNEL=(KERNEL, TABLES["CUPTI_ACTIVITY_KIND_KERNEL"][1][:1]),
        NVTX_EVENTS=(NVTX, [(1, None, 39, "MPI Rank 5", OWNER + 5, None)]),
    )
    result = read(Nsight(), path, rank=2)
    assert result.imported is not None
    assert [(rank.rank, rank.is_rank_known) for rank in result.imported.ranks] == [(5, True)]


def test_whole_graphs_keep_the_device_busy_and_are_said(tmp_path: Path) -> None:
    path = make(
        tmp_path / "a", CUPTI_ACTIVITY_KIND_GRAPH_TRACE=(GRAPH, [(500, 900, 0, 7, 21, OWNER, 3)])
    )
    result = read(Nsight(), path)
    graph = result.table("device").filter(text="CUDA graph").row(0, named=True)
    assert (graph["start_ns"], graph["end_ns"], graph["graph"]) == (500, 900, 3)
    assert facts(result) == ["graph-blocks"]


def test_a_trace_without_kernels_is_not_called_idle(tmp_path: Path) -> None:
    path = make(tmp_path / "a", CUPTI_ACTIVITY_KIND_KERNEL=None, CUPTI_ACTIVITY_KIND_MEMCPY=None)
    result = read(Nsight(), path)
    assert facts(result) == ["no-device"]
    assert result.table("host").height


def test_lost_events_are_said_in_the_profilers_words(tmp_path: Path) -> None:
    path = make(
        tmp_path / "a",
        DIAGNOSTIC_EVENT=("text TEXT", [("Number of CUDA events dropped: 12",), ("all fine",)]),
    )
    result = read(Nsight(), path)
    assert facts(result) == ["dropped"]


def test_negative_durations_are_left_out_and_counted(tmp_path: Path) -> None:
    path = make(
        tmp_path / "a",
        CUPTI_ACTIVITY_KIND_MEMCPY=(
            COPY,
            [(30, 20, 0, 7, 1, OWNER, 1, 1), (-(1 << 63), (1 << 63) - 1, 0, 7, 1, OWNER, 1, 1)],
        ),
    )
    result = read(Nsight(), path)
    assert result.table("device").height == 1
    assert facts(result) == ["insane"]


@pytest.mark.parametrize("value", ["soon", 1.5, None, b"\0\1"])
def test_a_time_that_is_no_number_is_refused_with_table_and_row(
    tmp_path: Path, value: object
) -> None:
    path = make(
        tmp_path / "a",
        CUPTI_ACTIVITY_KIND_MEMCPY=(
            COPY.replace("start INTEGER", "start"),
            [(10, 20, 0, 7, 1, OWNER, 1, 1), (value, 20, 0, 7, 1, OWNER, 1, 1)],
        ),
    )
    with pytest.raises(InputError, match=r"MEMCPY \(.* at byte \d+\), row 2: start and end"):
        read(Nsight(), path)


def test_other_cells_of_a_wrong_type_are_unknown_not_wrong(tmp_path: Path) -> None:
    strange = (100, 200, 0, 7, "x", OWNER, 1, 2, "many", 1 << 40, 1 << 40, 9, "a", 2, 1, 0, 0)
    path = make(
        tmp_path / "a",
        CUPTI_ACTIVITY_KIND_KERNEL=(KERNEL.replace(" INTEGER", ""), [strange]),
    )
    kernel = read(Nsight(), path).table("device").filter(start_ns=100).row(0, named=True)
    for column in ("correlation", "registers", "blocks", "threads"):
        assert kernel[column] is None, column


def test_hostile_names_are_kept_as_text_and_cut(tmp_path: Path) -> None:
    names = [(1, "\x1b[31m" + "x" * 1_000_000), (2, '"; DROP TABLE StringIds; --'), (3, "[b]")]
    path = make(tmp_path / "a", StringIds=("id INTEGER PRIMARY KEY, value TEXT", names))
    result = read(Nsight(), path)
    text = result.table("device").row(0, named=True)["text"]
    assert text.startswith("\x1b[31mxxx")
    assert len(text) < MOST_CHARACTERS + 100
    assert result.table("host")["text"].to_list()[0] == "[b]"


def test_a_view_in_place_of_a_table_is_not_read(tmp_path: Path) -> None:
    path = make(tmp_path / "a", CUPTI_ACTIVITY_KIND_MEMCPY=None)
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE VIEW CUPTI_ACTIVITY_KIND_MEMCPY AS WITH RECURSIVE t(start) AS "
        "(SELECT 1 UNION ALL SELECT start + 1 FROM t) SELECT start, start AS end FROM t"
    )
    connection.commit()
    connection.close()
    assert read(Nsight(), path).table("device").height == 1


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "places.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE moz_places (id INTEGER)")
    connection.commit()
    connection.close()
    with pytest.raises(InputError, match="Nsight Systems did not export it"):
        read(Nsight(), path)


def test_a_file_cut_short_says_where_it_ends_and_where_it_should(tmp_path: Path) -> None:
    data = make(tmp_path / "a").read_bytes()
    path = tmp_path / "cut"
    for size in range(16, len(data), 997):
        path.write_bytes(data[:size])
        with pytest.raises(InputError, match=rf"cut: it ends at byte {size}\b"):
            read(Nsight(), path)


def test_a_damaged_table_is_refused_and_on_request_left_out(tmp_path: Path) -> None:
    path = make(tmp_path / "a")
    connection = sqlite3.connect(path)
    query = "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_MEMCPY'"
    (page,) = connection.execute(query).fetchone()
    connection.close()
    data = bytearray(path.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a: table \w+_MEMCPY \(.* at byte \d+\) cannot be read"):
        read(Nsight(), path)
    result = read(Nsight(), path, partial=True)
    assert set(facts(result)) == {"truncated"}
    assert result.table("device").height == 1


def test_totals_of_real_exports_are_those_of_sqlite() -> None:
    for name, rank_of in (
        ("nsysai_h100_2gpu_1s.sqlite", {0: 0, 1: 1}),
        ("pipit_saxpy_mpi_cuda_perlmutter.sqlite", {0: 0}),
    ):
        path = real(f"nsys/{name}")
        result = read(Nsight(), path)
        connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        for device, rank in rank_of.items():
            spans = []
            for table in ("KERNEL", "MEMCPY", "MEMSET"):
                query = f"SELECT start, end FROM CUPTI_ACTIVITY_KIND_{table} WHERE deviceId = ?"
                spans += connection.execute(query, (device,)).fetchall()
            own = result.table("device", rank)
            assert sorted(own.select("start_ns", "end_ns").rows()) == sorted(spans)
        names = connection.execute(
            "SELECT s.value, COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
            "JOIN StringIds s ON s.id = k.demangledName GROUP BY 1"
        ).fetchall()
        counted: dict[str, int] = {}
        for rank in rank_of.values():
            for text in result.table("device", rank).filter(kind=1)["text"]:
                counted[text] = counted.get(text, 0) + 1
        assert counted == dict(names)
        connection.close()


def test_the_h100_computes_two_percent_of_the_time_and_copies_the_rest() -> None:
    device = read(Nsight(), real("nsys/nsysai_h100_2gpu_1s.sqlite")).table("device")
    spans = device.select("start_ns", "end_ns").rows()
    kernels = device.filter(kind=int(DeviceKind.KERNEL)).select("start_ns", "end_ns").rows()
    wall = max(end for _, end in spans) - min(start for start, _ in spans)
    extent = max(end for _, end in kernels) - min(start for start, _ in kernels)
    assert busy_share(kernels) * extent / wall == pytest.approx(0.023, abs=0.001)
    assert busy_share(spans) == pytest.approx(0.993, abs=0.001)


def test_a_packed_export_is_refused_with_the_way_to_unpack_it(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite.gz"
    path.write_bytes(gzip.compress(make(tmp_path / "a").read_bytes()))
    with pytest.raises(InputError, match=r"gunzip a\.sqlite\.gz"):
        Nsight().read(path, 0, Read(), partial=False, advance=lambda _: None)


def test_a_damaged_schema_is_not_quoted_at_length(tmp_path: Path) -> None:
    """Found by the fuzzer: SQLite quotes what it cannot parse, here a whole table's definition."""
    path = make(tmp_path / "a")
    data = path.read_bytes()
    words = b'CREATE TABLE "CUPTI_ACTIVITY_KIND_KERNEL" (start'
    assert words in data
    path.write_bytes(data.replace(words, words.replace(b"(start", b"(((((("), 1))
    with pytest.raises(InputError, match="cannot be opened as a database") as caught:
        read(Nsight(), path)
    assert len(str(caught.value)) < 500


def test_a_schema_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """Found by bench/fuzz_importers.py: SQLite's message quotes the bytes that are no UTF-8."""
    path = make(tmp_path / "a")
    data = path.read_bytes()
    damaged = data.replace(b"tableNVTX_EVENTS", b"tableNVTX_\xd3VENTS")
    damaged = damaged.replace(b'TABLE "NVTX_EVENTS" (start', b'TABLE "NVTX_EVENTS" )start')
    assert len(damaged) == len(data)
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="cannot be opened as a database"):
        read(Nsight(), path)
