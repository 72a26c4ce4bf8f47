"""What no import can use, in every format: refused with the file and a byte, and nothing is left.

A packed file has two sorts of offsets; its refusals say which of them is meant.
"""

from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING

import polars as pl
import pytest
import zstandard

from fuelline.ingest import find_sources, import_trace, unpack
from fuelline.schema.errors import InputError
from tests.unit.ingest.foreign import test_dcgm, test_straggler
from tests.unit.ingest.foreign.nsight_maker import COPY, make
from tests.unit.ingest.foreign.reading import RUN
from tests.unit.ingest.foreign.test_damage import FORMATS, whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVENT = b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": %s, "dur": 1}]}'
CELLS = dict(zip(test_straggler.COLUMNS, test_straggler.ROWS[0], strict=True))


def parquet(folder: Path, **changes: object) -> bytes:
    pl.DataFrame([CELLS | changes]).write_parquet(folder / "made")
    return (folder / "made").read_bytes()


def empty_parquet(folder: Path) -> bytes:
    pl.DataFrame([CELLS]).clear().write_parquet(folder / "made")
    return (folder / "made").read_bytes()


def database(folder: Path, **tables: object) -> bytes:
    return make(folder / "made", **tables).read_bytes()  # type: ignore[arg-type]


def announce(data: bytes) -> bytes:
    """A header that says there are four billion pages."""
    return data[:28] + b"\xff" * 4 + data[32:]


SOON = (COPY.replace("start INTEGER", "start"), [("soon", 20, 0, 7, 1, 1, 1, 1)])
NO_EVENTS = {"CUPTI_ACTIVITY_KIND_KERNEL": (COPY, []), "CUPTI_ACTIVITY_KIND_MEMCPY": (COPY, [])}
NO_EVENTS |= {"CUPTI_ACTIVITY_KIND_RUNTIME": None, "NVTX_EVENTS": None, "PROFILER_OVERHEAD": None}
OWN: dict[str, Callable[[Path], bytes]] = {
    "dcgm-text-for-a-number": lambda _: test_dcgm.scrape(91).replace(" 91", " soon", 1).encode(),
    "dcgm-absurd-line": lambda _: b"DCGM_FI_DEV_GPU_UTIL{" + b"a" * 2**21,
    "dcgm-nothing-in-it": lambda _: b'DCGM_FI_DEV_NONE{gpu="0"} 1\n',
    "kineto-text-for-a-number": lambda _: EVENT % b'"noon"',
    "kineto-absurd-time": lambda _: EVENT % b"1e300",
    "kineto-text-for-an-event": lambda _: b'{"traceEvents": ["a", 1]}',
    "kineto-nested": lambda _: b'{"traceEvents": [' + b"[" * 5000,
    "kineto-nothing-in-it": lambda _: b'{"traceEvents": []}',
    "kineto-no-array": lambda _: b'{"traceEvents": 7}',
    "nsys-text-for-a-number": lambda folder: database(folder, CUPTI_ACTIVITY_KIND_MEMCPY=SOON),
    "nsys-no-times": lambda folder: database(folder, CUPTI_ACTIVITY_KIND_MEMCPY=("a INTEGER", [])),
    "nsys-absurd-size": lambda folder: announce(database(folder)),
    "nsys-nothing-in-it": lambda folder: database(folder, **NO_EVENTS),
    "straggler-text-for-a-number": lambda folder: parquet(folder, start_ts="soon"),
    "straggler-absurd-time": lambda folder: parquet(folder, start_ts=1e300),
    "straggler-negative": lambda folder: parquet(folder, duration=-1.0),
    "straggler-other-columns": lambda folder: parquet(folder).replace(b"dp_rank", b"dp_bank"),
    "straggler-nothing-in-it": empty_parquet,
    "xplane-number-for-a-plane": lambda folder: whole("xplane", folder) + b"\x08\x01",
    "xplane-absurd-size": lambda folder: whole("xplane", folder) + b"\x0a\xff\xff\xff\x7f",
}
JUNK = {
    "empty": b"",
    "web-page": b"<!DOCTYPE html><html><body>502 Bad Gateway</body></html>",
    "binary": bytes(range(256)) * 40,
    "zip": b"PK\3\4" + bytes(60),
    "packed-twice": gzip.compress(gzip.compress(EVENT % b"1")),
}
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[:-3],
    "packed-and-cut": lambda data: gzip.compress(data)[:-9],
    "packed-by-zstd-and-cut": lambda data: zstandard.compress(data)[:-3],
    "packed-and-flipped": lambda data: gzip.compress(data, 0)[:30] + gzip.compress(data, 0)[31:],
    "bomb": lambda data: gzip.compress(data + b"\n" * 2**23),
}
CASES: dict[str, Callable[[Path], bytes]] = {
    **OWN,
    **{name: lambda _, data=data: data for name, data in JUNK.items()},
    **{
        f"{kind}-{name}": lambda folder, kind=kind, spoil=spoil: spoil(whole(kind, folder))
        for kind in FORMATS
        for name, spoil in DAMAGE.items()
    },
}


@pytest.mark.parametrize("case", CASES)
def test_a_refusal_names_the_file_and_a_byte_and_leaves_nothing(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpack, "_BOMB_BYTES", 2**20)
    folder = tmp_path / "given"
    folder.mkdir()
    path = folder / "bad"
    data = CASES[case](tmp_path)
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        import_trace(find_sources([path]), folder / "run", RUN, jobs=1)
    said = str(caught.value)
    assert str(path) in said
    assert "othing was imported" in said
    (offset, after) = re.search(r"\bbyte (\d+)(.{0,24})", said).groups()  # type: ignore[union-attr]
    assert int(offset) <= (len(data) if not unpack.is_packed(data) else 2**23)
    if unpack.is_packed(data) and int(offset) > 0:
        assert re.search("of the (packed file|unpacked content)|packed file ends", said), after
    assert list(folder.iterdir()) == [path]


def test_a_pointer_of_git_lfs_is_called_what_it_is(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 132735\n"
    (tmp_path / "trace.json.gz").write_text(pointer)
    with pytest.raises(
        InputError, match=r"pointer of Git LFS.*git lfs pull --include trace.json.gz"
    ):
        find_sources([tmp_path / "trace.json.gz"])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("et.json", '{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}', "execution trace"),
    ],
)
def test_what_has_no_times_or_is_not_read_is_called_what_it_is(
    tmp_path: Path, name: str, content: str, said: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=said):
        find_sources([tmp_path / name])
