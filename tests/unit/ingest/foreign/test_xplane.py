from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING

import pytest

from fuelline.ingest.xplane import XPlane
from fuelline.schema.errors import InputError
from fuelline.schema.run.trace import CopyDirection, DeviceKind, HostKind
from fuelline.signals.traced.kernels.names import classify
from tests.unit.ingest.foreign.protowriter import delimited, double, entry, number, walk
from tests.unit.ingest.foreign.reading import Read, busy_share, read, real

if TYPE_CHECKING:
    from pathlib import Path

_STATS = ("correlation_id", "kernel_details", "memcpy_details", "core_count", "a reference")


def event(name: int, offset_ps: int, duration_ps: int, *stats: bytes) -> bytes:
    return delimited(
        4,
        number(1, name)
        + number(2, offset_ps)
        + number(3, duration_ps)
        + b"".join(delimited(4, stat) for stat in stats),
    )


def line(name: str, *events: bytes, identity: int = 7, timestamp_ns: int = 1000) -> bytes:
    head = number(1, identity) + delimited(2, name) + number(3, timestamp_ns)
    return delimited(3, head + b"".join(events))


def plane(name: str, names: list[str], *rest: bytes) -> bytes:
    events = b"".join(
        entry(4, key, number(1, key) + delimited(2, text)) for key, text in enumerate(names, 1)
    )
    stats = b"".join(
        entry(5, key, number(1, key) + delimited(2, text)) for key, text in enumerate(_STATS, 1)
    )
    return delimited(1, number(1, 3) + delimited(2, name) + b"".join(rest) + events + stats)


def space() -> bytes:
    kernel = event(
        1, 2_000_000, 3_000_000, number(1, 1) + number(3, 42), number(1, 2) + number(7, 5)
    )
    copy = event(2, 9_000_000, 1_000_000, number(1, 3) + delimited(5, "size:64 dest:0 async:1"))
    device = plane(
        "/device:GPU:1",
        ["gemm", "MemcpyH2D", "5"],
        line("Stream #7(Compute)", kernel, copy),
        line("TensorFlow Ops", kernel, identity=8),
        line("Steps", event(3, 2_000_000, 8_000_000), identity=9),
        delimited(6, number(1, 4) + number(4, 80)),
    )
    host = plane(
        "/host:CPU",
        ["cuLaunchKernel", "$train.py:12 step", "void kernel<int>()"],
        line(
            "python",
            event(1, 0, 500_000, number(1, 1) + number(3, 42)),
            event(2, 0, 4_000_000),
            event(3, 0, 100_000, number(1, 1) + number(3, 43)),
            timestamp_ns=2000,
        ),
    )
    return device + host + delimited(4, "node7")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    path = tmp_path / "made"
    path.write_bytes(space())
    return path


def test_streams_become_device_events_and_derived_lines_do_not(made: Path) -> None:
    device = read(XPlane(), made).table("device")
    kernel, copy = device.sort("start_ns").iter_rows(named=True)
    assert (kernel["text"], kernel["kind"], kernel["device"]) == ("gemm", DeviceKind.KERNEL, 1)
    assert (kernel["start_ns"], kernel["end_ns"]) == (3000, 6000)
    assert (kernel["correlation"], kernel["stream"]) == (42, 7)
    assert (copy["kind"], copy["size_bytes"]) == (DeviceKind.COPY, 64)
    assert copy["direction"] == CopyDirection.HOST_TO_DEVICE


def test_host_events_are_calls_or_python_and_launches_are_named_as_such(made: Path) -> None:
    host = read(XPlane(), made).table("host")
    assert host.select("text", "kind").rows() == [
        ("cuLaunchKernel", HostKind.RUNTIME),
        ("$train.py:12 step", HostKind.PYTHON),
        ("cuLaunchKernel", HostKind.RUNTIME),
    ]


def test_steps_chips_and_host_are_told(made: Path) -> None:
    result = read(XPlane(), made)
    assert result.table("steps").rows() == [(5, 3000, 11000)]
    assert result.imported is not None
    assert result.imported.ranks[0].host == "node7"
    assert result.imported.ranks[0].chips[0].sm_count == 80


def test_times_beyond_reason_are_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "far"
    far = event(1, (1 << 63) - 1, (1 << 63) - 1)
    sane = event(1, 0, 5_000)
    path.write_bytes(
        plane("/device:GPU:0", ["k"], line("Stream #1", far, sane, timestamp_ns=(1 << 63) - 1))
        + plane("/device:GPU:1", ["k"], line("Stream #1", sane))
    )
    result = read(XPlane(), path)
    assert result.imported is not None
    assert result.table("device")["device"].to_list() == [1]
    assert [each.code for each in result.imported.quality] == ["insane"]


def test_an_occurrence_count_is_no_event(tmp_path: Path) -> None:
    path = tmp_path / "counted"
    counted = delimited(4, number(1, 1) + number(5, 12))
    path.write_bytes(plane("/device:GPU:0", ["k"], line("Stream #1", counted, event(1, 0, 1000))))
    assert read(XPlane(), path).table("device").height == 1


def test_a_file_cut_short_anywhere_says_where(made: Path, tmp_path: Path) -> None:
    """Except between two planes, where nothing in the file tells that another one followed."""
    data = made.read_bytes()
    path = tmp_path / "cut"
    refusals = []
    for size in range(1, len(data)):
        path.write_bytes(data[:size])
        if XPlane().recognises(data[:size]):
            try:
                read(XPlane(), path)
            except InputError as error:
                refusals.append(str(error))
    planes = 2
    unnamed = 3 + len("/device:GPU:1")
    assert all(re.search(r"cut, byte \d+: .*nothing was imported", said) for said in refusals)
    assert len(refusals) >= len(data) - 1 - planes - unnamed - len("node7")


@pytest.mark.parametrize(
    "head",
    [b"", b"\n", b'{"traceEvents": [', b"SQLite format 3\0", b"\n\x05\x12\xff\x01ab", b"\n\n\n\n"],
)
def test_other_files_are_not_taken_for_it(head: bytes) -> None:
    assert not XPlane().recognises(head)


@pytest.mark.parametrize(
    "name", ["tracelens_mi300_jax_gemm.xplane.pb", "xprof_GPU-multi-worker.xplane.pb"]
)
@pytest.mark.integration
def test_totals_of_real_files_are_those_of_a_naive_walk(name: str) -> None:
    path = real(f"xplane/{name}")
    result = read(XPlane(), path)
    events: dict[str, list[tuple[int, int]]] = {"device": [], "host": []}
    for data in walk(path.read_bytes())[1]:
        own = walk(bytes(data))
        title = bytes(own[2][0])
        for each in own.get(3, []):
            thread = walk(bytes(each))
            is_stream = bytes(thread[2][0]).startswith(b"Stream #")
            table = "device" if title.startswith(b"/device") else "host"
            if table == "host" or is_stream:
                events[table] += _spans(thread)
    for table, expected in events.items():
        frame = result.table(table)
        assert sorted(frame.select("start_ns", "end_ns").rows()) == sorted(expected)
    assert result.imported is not None
    assert result.imported.source.events == sum(map(len, events.values()))
    assert busy_share(events["device"]) == pytest.approx(
        busy_share(result.table("device").select("start_ns", "end_ns").rows())
    )


def _spans(thread: dict[int, list[int | bytes]]) -> list[tuple[int, int]]:
    since = int(thread.get(3, [0])[0])
    spans = []
    for data in thread.get(4, []):
        own = walk(bytes(data))
        offset, duration = int(own.get(2, [0])[0]), int(own.get(3, [0])[0])
        spans.append((since + offset // 1000, since + (offset + duration) // 1000))
    return spans


@pytest.mark.integration
def test_a_real_trace_says_which_devices_it_does_not_know() -> None:
    result = read(XPlane(), real("xplane/xprof_GPU-multi-worker.xplane.pb"))
    assert result.imported is not None
    (quality,) = result.imported.quality
    assert "5 of 8 devices" in quality.problem
    assert result.imported.ranks[0].chips[4].sm_count == 80
    assert result.table("device").filter(device=4)["threads"].drop_nulls().len() == 665


def test_a_double_is_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "tpu"
    data = delimited(2, "/device:TPU:0") + delimited(6, number(1, 1) + double(2, 275.0))
    data += entry(5, 1, delimited(2, "peak_teraflops_per_second"))
    data += entry(4, 1, delimited(2, "all-reduce.3"))
    data += line("XLA Ops", event(1, 0, 2000))
    path.write_bytes(delimited(1, data))
    result = read(XPlane(), path)
    assert result.imported is not None
    assert result.imported.ranks[0].chips[0].peak_flops_per_s == 275e12
    (event_row,) = result.table("device").to_dicts()
    assert (event_row["kind"], classify(event_row["text"])) == (DeviceKind.KERNEL, "communication")


def test_a_packed_file_is_unpacked(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "packed"
    path.write_bytes(gzip.compress(made.read_bytes()))
    result = Read()
    XPlane().read(path, 0, result, partial=False, advance=lambda _: None)
    assert result.table("device").height == 2


def test_the_whole_planes_of_a_file_cut_short_are_read_if_asked(made: Path, tmp_path: Path) -> None:
    data = made.read_bytes()
    found = read(XPlane(), made)
    path = tmp_path / "cut"
    path.write_bytes(data + data[: len(data) // 3])
    with pytest.raises(InputError, match="--partial"):
        read(XPlane(), path)
    again = read(XPlane(), path, partial=True)
    assert again.table("device").rows() == found.table("device").rows()
    (cut,) = [each for each in again.imported.quality if each.code == "truncated"]
    assert f"byte {len(data)}" in cut.problem


def test_a_file_without_a_whole_plane_is_refused_even_in_part(made: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut"
    path.write_bytes(made.read_bytes()[:20])
    with pytest.raises(InputError, match="no plane is whole"):
        read(XPlane(), path, partial=True)


_HBM, _HOST = "f32[8,128]{1,0:T(8,128)}", "f32[8,128]{1,0:T(8,128)S(5)}"


@pytest.mark.parametrize(
    ("operation", "direction"),
    [
        (
            f"%copy-done.2 = {_HBM} copy-done(({_HBM}, {_HOST}, u32[]{{:S(2)}}) %copy-start.2)",
            CopyDirection.HOST_TO_DEVICE,
        ),
        (
            f"%copy-done.5 = {_HOST} copy-done(({_HOST}, {_HBM}, u32[]{{:S(2)}}) %copy-start.5)",
            CopyDirection.DEVICE_TO_HOST,
        ),
        (
            f"%copy-start = ({_HBM}, {_HOST}, u32[]{{:S(2)}}) copy-start({_HOST} %param)",
            CopyDirection.HOST_TO_DEVICE,
        ),
        (
            f"%copy-done.9 = {_HBM} copy-done(({_HBM}, {_HBM}, u32[]{{:S(2)}}) %copy-start.9)",
            CopyDirection.DEVICE_TO_DEVICE,
        ),
    ],
)
def test_a_copy_between_memories_of_a_tpu_is_a_copy_with_its_direction(
    tmp_path: Path, operation: str, direction: CopyDirection
) -> None:
    done = line("XLA Ops", event(1, 0, 9_000_000), event(2, 9_000_000, 1_000_000))
    reader = f"%add_fusion = {_HBM} fusion({_HBM} %copy-done.2), kind=kLoop"
    path = tmp_path / "tpu"
    path.write_bytes(plane("/device:TPU:0", [operation, reader], done))
    copy, fusion = read(XPlane(), path).table("device").to_dicts()
    assert (copy["kind"], copy["direction"]) == (DeviceKind.COPY, direction)
    assert fusion["kind"] == DeviceKind.KERNEL


def test_the_real_tpu_trace_waits_for_the_memory_of_the_host() -> None:
    events = read(XPlane(), real("labelled/tpu_inference_2_old.xplane.pb")).table("device")
    took = events["end_ns"] - events["start_ns"]
    copies = took.filter(events["kind"] == DeviceKind.COPY).sum()
    from_host = events["direction"] == CopyDirection.HOST_TO_DEVICE
    assert copies / took.sum() == pytest.approx(0.966, abs=0.001)
    assert took.filter(from_host).sum() / took.sum() == pytest.approx(0.743, abs=0.02)
