"""Every layout of a Kineto trace gives the same tables, and big ones do not need memory."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from fuelline.ingest.kineto import split
from fuelline.schema.run.trace import DeviceKind, HostKind
from tests.unit.ingest.kineto.texts import (
    LAYOUTS,
    call,
    document,
    kernel,
    lay_out,
    load,
    mark,
    op,
    write,
)

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = [
    mark(0, 1000, "ProfilerStep#7"),
    op(10, 30, **{"Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"]}),
    call(20, 5, 1),
    kernel(40, 10, 1),
    {"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": 20, "cat": "ac2g", "name": "ac2g"},
    kernel(60.5, 2.25, 2, "nested", extra=[{"ph": 1}, {"ph": 2}]),
    {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "}, {"}},
]


def tables(trace: Any) -> dict[str, list[Any]]:
    names = ("device", "host", "steps", "ops", "names")
    return {name: trace.table(name, trace.ranks[0]).rows() for name in names}


@pytest.mark.parametrize("piece_bytes", [64, 300, 10**6])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_and_size_of_pieces_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, piece_bytes: int
) -> None:
    monkeypatch.setattr(split, "PIECE_BYTES", piece_bytes)
    path = tmp_path / "trace"
    path.write_bytes(lay_out(EVENTS * 20, layout, ', "traceName": "a ] b", "list": [{}, {}]'))
    trace = load(tmp_path, path)
    device = trace.table("device", 0)
    assert device.height == 40
    assert device["start_ns"].to_list()[:2] == [40_000, 60_500]
    assert device["end_ns"].to_list()[:2] == [50_000, 62_750]
    assert device["blocks"].to_list()[0] == 54
    assert device["kind"].unique().to_list() == [DeviceKind.KERNEL]
    host = trace.table("host", 0)
    assert sorted(host["kind"].to_list()) == sorted(
        [HostKind.ANNOTATION, HostKind.OP, HostKind.RUNTIME] * 20
    )
    assert trace.table("steps", 0)["step"].to_list() == [7] * 20
    assert trace.table("ops", 0)["flops"].to_list() == [2 * 4 * 8 * 2] * 20


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_packing_is_told_by_content_not_by_name(tmp_path: Path, pack: Any) -> None:
    text = json.dumps(document(EVENTS)).encode()
    path = tmp_path / "report.txt"
    path.write_bytes(pack(text))
    assert load(tmp_path, path).table("device", 0).height == 2


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_packed_file_may_have_several_members(tmp_path: Path, pack: Any) -> None:
    text = json.dumps(document(EVENTS)).encode()
    path = tmp_path / "trace.gz"
    path.write_bytes(pack(text[:70]) + pack(b"") + pack(text[70:]))
    assert load(tmp_path, path).table("device", 0).height == 2


def test_a_bare_array_needs_no_closing_bracket(tmp_path: Path) -> None:
    text = json.dumps(EVENTS).encode()
    for number, end in enumerate((b"", b"\n")):
        path = tmp_path / f"array{number}"
        path.write_bytes(text.rstrip(b"]") + b"," + end)
        assert load(tmp_path, path).table("device", 0).height == 2


def test_fractions_of_microseconds_of_an_epoch_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    text = json.dumps(document([kernel(1.0, 63.813)]))
    path.write_text(text.replace('"ts": 1.0', '"ts": 1712195495519689.047'))
    device = load(tmp_path, path).table("device", 0)
    assert device["start_ns"].item() == 1712195495519689047
    assert device["end_ns"].item() == 1712195495519689047 + 63813


def test_numbers_may_be_text_and_grids_too(tmp_path: Path) -> None:
    odd = kernel(5, 2, grid="(8, 2, 1)", bytes="128", stream="7")
    odd["args"]["correlation"] = "0x10"
    odd |= {"ts": "5.5", "dur": "2", "tid": "stream 7"}
    device = load(tmp_path, write(tmp_path / "trace", [odd])).table("device", 0)
    row = device.select("start_ns", "end_ns", "blocks", "size_bytes", "correlation").row(0)
    assert row == (5500, 7500, 16, 128, 16)


def test_old_category_names_and_keys_are_known(tmp_path: Path) -> None:
    old = kernel(5, 2, 3)
    old["cat"] = "Kernel"
    old["args"]["external id"] = 99
    loading = op(1, 2, "enumerate(DataLoader)#next")
    loading |= {"cat": "Operator", "tid": "25738"}
    memory = {"name": "[memory]", "ph": "i", "s": "t", "pid": 1, "tid": "25738", "ts": 1}
    trace = load(tmp_path, write(tmp_path / "trace", [old, loading, memory]))
    assert trace.table("device", 0)["external"].item() == 99
    assert trace.table("host", 0).select("thread", "kind").row(0) == (25738, HostKind.OP)


def test_a_negative_duration_counts_as_empty_and_is_stated(tmp_path: Path) -> None:
    trace = load(tmp_path, write(tmp_path / "trace", [kernel(5, -3), kernel(9, 0)]))
    device = trace.table("device", 0)
    assert (device["end_ns"] - device["start_ns"]).to_list() == [0, 0]
    assert "1 events end before they start" in trace.facts.quality[0].problem


def test_what_json_does_not_know_is_mended(tmp_path: Path) -> None:
    text = json.dumps(document([kernel(5, 2, bandwidth=1.5), kernel(9, 1)])).encode()
    path = tmp_path / "trace"
    path.write_bytes(text.replace(b"1.5", b"-inf").replace(b'"gemm"', b'"ge\xffm"', 1))
    trace = load(tmp_path, path)
    assert trace.table("device", 0).height == 2
    assert "ge?m" in trace.texts(0).values()


def test_rank_and_chip_come_from_before_or_behind_the_events(tmp_path: Path) -> None:
    said = {"distributedInfo": {"rank": 3, "world_size": 8, "backend": "nccl"}}
    before = tmp_path / "before"
    before.write_text(json.dumps({**said, **document([kernel(1, 1)])}))
    behind = tmp_path / "behind"
    behind.write_text(json.dumps({**document([kernel(1, 1)]), **said}))
    for path in (before, behind):
        (rank,) = load(tmp_path, path).facts.ranks
        assert (rank.rank, rank.world_size, rank.chips[0].sm_count) == (3, 8, 108)


def test_files_without_a_rank_are_numbered_by_their_names(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"rank{n}.json", [kernel(n, 1)]) for n in (0, 2, 10)]
    trace = load(tmp_path, *paths)
    assert trace.ranks == [0, 2, 10]
    assert [trace.table("device", rank)["start_ns"].item() for rank in trace.ranks] == [
        0,
        2000,
        10_000,
    ]


def test_a_folder_of_files_without_a_rank_is_numbered_in_natural_order(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    for n in range(11):
        write(folder / f"worker{n}.pt.trace.json", [kernel(n, 1)])
    trace = load(tmp_path, folder)
    starts = [trace.table("device", rank)["start_ns"].item() for rank in trace.ranks]
    assert starts == [n * 1000 for n in range(11)]


def test_events_may_come_late_in_a_file_of_other_producers(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    late = {"otherData": {"notes": "x" * 100_000}, "traceEvents": [kernel(1, 1)]}
    path.write_text(json.dumps(late))
    assert load(tmp_path, path).table("device", 0).height == 1


@pytest.mark.parametrize("cat", ["xpu_runtime", "hpu_op", "privateuse1_driver", "mtia_runtime"])
def test_calls_of_other_accelerators_launch_their_kernels(tmp_path: Path, cat: str) -> None:
    trace = load(tmp_path, write(tmp_path / "trace", [call(1, 2, 3) | {"cat": cat}, kernel(5, 1)]))
    assert trace.table("host", 0)["kind"].item() == HostKind.RUNTIME


def test_a_chrome_trace_of_xprof_is_sent_to_its_xplane(tmp_path: Path) -> None:
    named = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}}
    event = {"ph": "X", "pid": 1, "tid": 14, "ts": 1, "dur": 2, "name": "fusion"}
    path = write(tmp_path / "trace", [named, event])
    (quality,) = load(tmp_path, path).facts.quality
    assert "XProf" in quality.problem
    assert ".xplane.pb" in quality.forbids


def test_files_that_claim_one_rank_are_numbered_and_the_doubt_is_stated(tmp_path: Path) -> None:
    said = {"distributedInfo": {"rank": 0}, "baseTimeNanoseconds": 1_712_000_000_000_000_000}
    paths = [write(tmp_path / f"step{n}.json", [kernel(n, 1)], **said) for n in (1, 2)]
    trace = load(tmp_path, *paths)
    assert trace.ranks == [0, 1]
    assert [each.code for each in trace.facts.quality] == ["same-rank"]


def test_processes_side_by_side_give_what_one_by_one_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuelline.ingest.imports._PARALLEL_BYTES", 0)
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(3):
        write(folder / f"rank{rank}.json", EVENTS * (rank + 1))
    apart, alone = load(tmp_path, folder, jobs=2), load(tmp_path, folder, jobs=1)
    assert apart.facts == alone.facts
    for rank in range(3):
        for name in ("device", "host", "steps", "ops", "names"):
            assert apart.table(name, rank).equals(alone.table(name, rank))
