"""Ascend's timeline: tasks of the hardware, collectives, and the calls that launched them."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from fuelline.ingest.ascend import Ascend
from fuelline.ingest.formats import find_importer
from fuelline.schema.errors import InputError
from fuelline.schema.run.trace import DeviceKind, HostKind
from tests.unit.ingest.foreign.reading import busy_share, read, real

if TYPE_CHECKING:
    from pathlib import Path

_START_US = 1704161511422904
_HARDWARE, _CANN, _TALK, _OVERLAP = 800, 43767502, 900, 4376751100


def event(name: str, pid: int, start: float, dur: float, **more: Any) -> dict[str, Any]:
    base = {"ph": "X", "name": name, "pid": pid, "tid": 3, "dur": dur}
    return {
        **base,
        "ts": f"{_START_US}.{round(start * 1000):03d}" if start < 1 else at(start),
        **more,
    }


def at(start: float) -> str:
    return f"{_START_US + int(start)}.{round(start % 1 * 1000):03d}"


def task(name: str, start: float, dur: float, kind: str = "AI_CORE", connection: int = 8) -> Any:
    args = {"Task Type": kind, "Stream Id": 3, "connection_id": connection}
    return event(name, _HARDWARE, start, dur, args=args)


def call(name: str, start: float, dur: float) -> dict[str, Any]:
    return event(name, _CANN, start, dur, tid=71, args={"level": "acl", "connection_id": 9})


def arrow(start: float, connection: int) -> dict[str, Any]:
    number = str((connection << 32) + 0xFFFFFFFF)
    base = {"ph": "s", "cat": "HostToDevice", "name": "HostToDevice1", "id": number}
    return {**base, "pid": _CANN, "tid": 71, "ts": at(start)}


EVENTS: list[dict[str, Any]] = [
    {"ph": "M", "name": "process_name", "pid": _HARDWARE, "args": {"name": "Ascend Hardware"}},
    event("ProfilerStep#4", 1, 0, 90.5, cat="cpu_op", args={"Fwd thread id": 0}),
    event("aten::mm", 1, 1, 9.25, cat="cpu_op"),
    call("AscendCL@aclnnMm", 2, 6),
    arrow(3, 8),
    arrow(4, 10),
    task("aclnnMm_MatMulCommon_MatMulV2", 10, 20.125),
    task("MEMCPY_ASYNC", 31, 2, "MEMCPY_ASYNC", 10),
    task("EVENT_WAIT", 33, 40, "EVENT_WAIT", 11),
    task("NOTIFY_WAIT_SQE", 33, 40, "NOTIFY_WAIT_SQE", 12),
    event("hcom_allReduce__123_0", _TALK, 40, 30, args={"connection_id": 13, "count": 4}),
    event("Notify_Wait", _TALK, 40, 20, args={"notify_id": 5, "task type": "Notify Wait"}),
    event("Computing", _OVERLAP, 10, 20.125),
    event("Free", _OVERLAP, 33, 7),
]


def made(events: list[dict[str, Any]] | None = None) -> bytes:
    return json.dumps(EVENTS if events is None else events).encode()


def given(folder: Path, data: bytes) -> Path:
    path = folder / "trace_view.json"
    path.write_bytes(data)
    return path


def test_tasks_that_work_are_device_events_and_waits_are_not(tmp_path: Path) -> None:
    rows = read(Ascend(), given(tmp_path, made())).table("device").to_dicts()
    assert [(row["text"], row["kind"]) for row in rows] == [
        ("aclnnMm_MatMulCommon_MatMulV2", DeviceKind.KERNEL),
        ("MEMCPY_ASYNC", DeviceKind.COPY),
        ("hcom_allReduce__123_0", DeviceKind.COMMUNICATION),
    ]
    assert rows[0]["end_ns"] - rows[0]["start_ns"] == 20_125


def test_a_task_is_joined_with_the_call_that_its_arrow_begins_in(tmp_path: Path) -> None:
    result = read(Ascend(), given(tmp_path, made()))
    calls = [row for row in result.table("host").to_dicts() if row["correlation"] in (8, 10)]
    assert [(row["text"], row["correlation"]) for row in calls] == [
        ("AscendCL@aclnnMm", 8),
        ("AscendCL@aclnnMm", 10),
    ]
    assert {row["kind"] for row in calls} == {HostKind.RUNTIME}
    assert {row["text"] for row in result.table("host").to_dicts()} >= {"aten::mm"}


def test_steps_are_those_that_the_profiler_marked(tmp_path: Path) -> None:
    (step,) = read(Ascend(), given(tmp_path, made())).table("steps").to_dicts()
    assert (step["step"], step["end_ns"] - step["start_ns"]) == (4, 90_500)


def test_the_rank_is_told_by_the_profilers_own_file(tmp_path: Path) -> None:
    (tmp_path / "profiler_info_5.json").write_text("{}")
    folder = tmp_path / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir()
    result = read(Ascend(), given(folder, made()))
    assert result.imported is not None
    (facts,) = result.imported.ranks
    assert (facts.rank, facts.is_rank_known) == (5, True)


@pytest.mark.parametrize(
    "strange",
    [
        {"ph": "X", "name": 5, "ts": []},
        {"ph": "X", "args": {"Task Type": {}}, "ts": "1"},
        [],
        7,
    ],
)
def test_events_of_another_shape_are_left_out(tmp_path: Path, strange: Any) -> None:
    result = read(Ascend(), given(tmp_path, made([*EVENTS, strange])))
    assert result.table("device").height == 3


def test_a_time_that_is_none_is_refused(tmp_path: Path) -> None:
    bad = {**EVENTS[6], "ts": "soon"}
    with pytest.raises(InputError, match="soon"):
        read(Ascend(), given(tmp_path, made([*EVENTS, bad])))


def test_a_file_of_kineto_is_not_taken_for_it() -> None:
    numbers = (
        b'{"traceEvents": [{"ph": "X", "ts": 1704161511422904.2, "args": {"Fwd thread id": 0}}]}'
    )
    assert not Ascend().recognises(numbers)
    assert not Ascend().recognises(b'[{"ph": "X", "ts": "1704161511422904.2"}]')


def test_the_real_trace_is_busy_for_16_percent(tmp_path: Path) -> None:
    packed = real("labelled/ascend_trace_view.json.gz")
    found = find_importer(packed)
    assert found is not None
    assert found.format == "ascend"
    result = read(Ascend(), given(tmp_path, gzip.decompress(packed.read_bytes())))
    device = result.table("device")
    assert device.height == 276
    spans = list(device.select("start_ns", "end_ns").iter_rows())
    assert busy_share(spans) == pytest.approx(0.1589, abs=0.0005)
    asked = result.table("host")["correlation"].drop_nulls().to_list()
    assert device["correlation"].is_in(asked).sum() >= 274
