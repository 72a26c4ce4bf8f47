"""Perfetto's protocol buffers, in the shape that rocprofv3 writes them."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from fuelline.ingest.formats import find_importer
from fuelline.schema.errors import InputError
from fuelline.schema.run.trace import CopyDirection, HostKind
from tests.unit.ingest.foreign.protowriter import delimited, number
from tests.unit.ingest.kineto.texts import load

if TYPE_CHECKING:
    from pathlib import Path

BEGIN, END = 1, 2
GPU, COPIES, THREAD = 0xF000_0000_0000_0001, 22, 33
_ANNOTATIONS = ("corr_id", "grid_size", "workgroup_size", "copy_bytes", "tid")


def packet(*fields: bytes, sequence: int = 5) -> bytes:
    return delimited(1, b"".join(fields) + number(10, sequence))


def track(uuid: int, name: str) -> bytes:
    return packet(delimited(60, number(1, uuid) + delimited(2, name)))


def interned(*texts: tuple[int, int, str]) -> bytes:
    """Field of the table, number, text."""
    return b"".join(delimited(f, number(1, iid) + delimited(2, text)) for f, iid, text in texts)


def words() -> bytes:
    categories = ((1, 1, "kernel_dispatch"), (1, 2, "memory_copy"), (1, 3, "hip_api"))
    names = ((2, 1, "gemm_kernel"), (2, 2, "MEMORY_COPY_HOST_TO_DEVICE"), (2, 3, "hipLaunchKernel"))
    said = tuple((3, iid, name) for iid, name in enumerate(_ANNOTATIONS, 1))
    return packet(number(13, 1), delimited(12, interned(*categories, *names, *said)))


def began(at: int, uuid: int, which: int, **said: int) -> bytes:
    notes = b"".join(
        delimited(4, number(1, _ANNOTATIONS.index(name) + 1) + number(3, value))
        for name, value in said.items()
    )
    event = number(9, BEGIN) + number(11, uuid) + number(10, which) + number(3, which) + notes
    return packet(number(8, at), delimited(11, event))


def ended(at: int, uuid: int) -> bytes:
    return packet(number(8, at), delimited(11, number(9, END) + number(11, uuid)))


def written() -> bytes:
    """A launch and its kernel, and a copy."""
    return b"".join(
        [
            packet(number(13, 1), delimited(6, b"")),
            track(GPU, "COMPUTE AGENT [4] STREAM [2] (GPU)"),
            track(COPIES, "COPY to AGENT [4] STREAM [1] (GPU)"),
            track(THREAD, "THREAD 1 (77)"),
            words(),
            *(began(1000, THREAD, 3, corr_id=9, tid=77), ended(1500, THREAD)),
            *(began(2000, GPU, 1, corr_id=9, grid_size=4096, workgroup_size=256),),
            *(ended(9000, GPU), began(9500, COPIES, 2, copy_bytes=64), ended(9700, COPIES)),
        ]
    )


def given(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "given.pftrace"
    path.write_bytes(data)
    return path


def test_kernels_copies_and_calls_are_told_by_their_categories(tmp_path: Path) -> None:
    trace = load(tmp_path, given(tmp_path, written()))
    kernel, copy = trace.table("device", 0).sort("start_ns").to_dicts()
    assert (kernel["start_ns"], kernel["end_ns"], kernel["correlation"]) == (2000, 9000, 9)
    assert (kernel["device"], kernel["stream"]) == (4, 2)
    assert (kernel["blocks"], kernel["threads"]) == (16, 256)
    assert (copy["size_bytes"], copy["direction"]) == (64, int(CopyDirection.HOST_TO_DEVICE))
    (call,) = trace.table("host", 0).to_dicts()
    assert (call["kind"], call["correlation"], call["thread"]) == (int(HostKind.RUNTIME), 9, 77)
    assert trace.texts(0)[kernel["name"]] == "gemm_kernel"


def test_packed_packets_are_read(tmp_path: Path) -> None:
    data = packet(number(13, 1)) + packet(delimited(50, zlib.compress(written())))
    assert load(tmp_path, given(tmp_path, data)).table("device", 0).height == 2


def test_clocks_that_count_from_packet_to_packet_are_added_up(tmp_path: Path) -> None:
    clock = number(1, 64) + number(2, 5000) + number(3, 1)
    counted = [
        packet(number(13, 1), delimited(6, delimited(1, clock)), delimited(59, number(58, 64))),
        words(),
    ]
    # Flags that clear a sequence forget its clocks as well.
    counted.append(packet(delimited(6, delimited(1, clock)), delimited(59, number(58, 64))))
    counted += [began(100, GPU, 1), ended(250, GPU)]
    (kernel,) = load(tmp_path, given(tmp_path, b"".join(counted))).table("device", 0).to_dicts()
    assert (kernel["start_ns"], kernel["end_ns"]) == (5100, 5350)


def test_what_was_cleared_is_not_used(tmp_path: Path) -> None:
    data = b"".join([written(), packet(number(13, 1)), began(10_000, GPU, 1), ended(11_000, GPU)])
    assert load(tmp_path, given(tmp_path, data)).table("device", 0).height == 2


def test_slices_without_an_end_are_counted(tmp_path: Path) -> None:
    trace = load(tmp_path, given(tmp_path, written() + began(10_000, GPU, 1)))
    assert [each.code for each in trace.facts.quality] == ["unended"]


def test_a_cut_file_is_refused_with_its_byte_and_read_if_asked_to(tmp_path: Path) -> None:
    path = given(tmp_path, written()[:-3])
    with pytest.raises(InputError, match="byte"):
        load(tmp_path, path)
    trace = load(tmp_path, path, partial=True)
    assert {each.code for each in trace.facts.quality} == {"truncated", "unended"}


def test_a_space_of_planes_is_no_perfetto_trace(tmp_path: Path) -> None:
    from tests.unit.ingest.foreign.test_xplane import space

    path = tmp_path / "given"
    path.write_bytes(space())
    found = find_importer(path)
    assert found is not None
    assert found.format == "xplane"
