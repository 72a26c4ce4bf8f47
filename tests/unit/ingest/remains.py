"""Spools, journals and run folders made by hand, straight from the wire format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fuelline.schema import wire
from fuelline.schema.run.journal import encode_frame
from fuelline.schema.run.recording import RUN_FILE, SPOOL_DIR, RunFacts
from fuelline.schema.run.samples import (
    JOURNAL_NAME,
    Blind,
    DeviceProcess,
    DeviceSample,
    DeviceSeen,
    HostSample,
    Limits,
    Place,
    ProcessClock,
    ProcessSeen,
    SourceLine,
    StackSample,
    ThreadClock,
    ThreadState,
)
from fuelline.schema.wire import Kind

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.schema.run.samples import Row

PID, TID, CREATED_NS = 4711, 4712, 10**12


def header(
    *notes: int, magic: bytes = wire.MAGIC, version: int = wire.VERSION, pid: int = PID
) -> bytes:
    """The header page of a spool, with the first of its `wire.NOTES`."""
    page = bytearray(wire.HEADER_BYTES)
    wire.HEADER.pack_into(page, 0, magic, version, pid, 1, 0x030B0000, CREATED_NS, 10**18)
    wire.NOTES.pack_into(page, wire.NOTES_OFFSET, *notes, *(0,) * (6 - len(notes)))
    return bytes(page)


def spool(*records: bytes, front: bytes | None = None) -> bytes:
    """A spool as the recorder leaves it: a header that knows its length, and records."""
    content = bytearray((header() if front is None else front) + b"".join(records))
    *notes, _ = wire.NOTES.unpack_from(content, wire.NOTES_OFFSET)
    wire.NOTES.pack_into(content, wire.NOTES_OFFSET, *notes, len(content))
    return bytes(content)


def record(kind: int, *fields: int, start_ns: int = CREATED_NS + 5, dur_ns: int = 3) -> bytes:
    """One record with its fields a, b, c, d, e."""
    padded = (*fields, *(0,) * (5 - len(fields)))
    return wire.RECORD.pack(start_ns, dur_ns, *padded, TID, 0, int(kind))


def text(text_id: int, words: str) -> list[bytes]:
    """The chunks of one text."""
    data = words.encode()
    return [
        wire.TEXT_RECORD.pack(
            text_id,
            len(data),
            data[at : at + wire.TEXT_CHUNK],
            TID,
            at // wire.TEXT_CHUNK,
            int(Kind.TEXT),
        )
        for at in range(0, len(data), wire.TEXT_CHUNK)
    ]


HOLE = bytes(wire.RECORD_BYTES)
"""A slot that a thread took and did not live to fill."""

RUN = RunFacts(
    run_id="20260101-000000-train-1",
    command=["python", "train.py"],
    host="here",
    started_wall_ns=1_750_000_000_000_000_000,
    started_ns=CREATED_NS,
    ended_ns=CREATED_NS + 60 * 10**9,
    exit_code=0,
)

JOURNAL: list[Row] = [
    Limits(CREATED_NS, 4, 8, 1.5, 10**9, {"8:1": {"read_bps": 1e7}}),
    ProcessSeen(CREATED_NS, PID, 1, "python"),
    Place(1, "/data/a", "/data", "nfs4", "0:44"),
    ThreadState(CREATED_NS, PID, TID, 1, "read", "pread64", 1, 20),
    ThreadClock(CREATED_NS + 1, PID, TID, 100, 10),
    ProcessClock(CREATED_NS + 1, PID, 100, 2, 3, 4, 5, 6, 7, 8),
    HostSample(CREATED_NS + 1, {"cpu.busy_ns": 12.0, "psi.io.some_us": 4.0}),
    StackSample(CREATED_NS, CREATED_NS + 9, PID, TID, [f"main ({__file__}:1)", "odd"], 3),
    SourceLine(__file__, 1, "def main():"),
    Blind("wchan", "refused", "nothing much"),
    DeviceSeen(CREATED_NS, "gpu0", "NVIDIA", "NVIDIA H100 80GB HBM3"),
    DeviceSeen(CREATED_NS, "gpu0", "NVIDIA", "NVIDIA H100 80GB HBM3", refusals={"gpm": "none"}),
    DeviceSample(CREATED_NS + 1, "gpu0", {"util.gpu_frac": 0.95, "clock.sm_hz": 1.98e9}),
    DeviceProcess(CREATED_NS + 1, "gpu0", PID, 10**9, of_job=True),
]


def training_records(steps: int = 8) -> list[bytes]:
    """A loader and a few steps of 90 ns."""
    settings = text(1, '{"num_workers": 2, "batch_size": 32, "dataset": "Photos"}')
    process = text(2, '{"framework": "torch", "version": "2.13.0", "threads": 4}')
    rows = [*settings, *process, record(Kind.PROCESS, 2), record(Kind.SOURCE, 1, 1)]
    for step in range(steps):
        at = CREATED_NS + 10 + step * 90
        rows += [
            record(Kind.WAIT, 1, 32, 1000, -1, step, start_ns=at, dur_ns=30),
            record(Kind.BACKWARD, 0, -1, start_ns=at + 50, dur_ns=20),
            record(Kind.STEP, 1, -1, start_ns=at + 70, dur_ns=20),
        ]
    return rows


def write_run(
    folder: Path,
    *,
    run: RunFacts = RUN,
    records: list[bytes] | None = None,
    journal: list[Row] | None = None,
) -> Path:
    """A run as the recorder leaves it: run.json, one spool, the observer's journal."""
    (folder / SPOOL_DIR).mkdir(parents=True)
    (folder / RUN_FILE).write_bytes(msgspec.json.encode(run))
    content = spool(*(training_records() if records is None else records))
    (folder / SPOOL_DIR / f"{PID}.spool").write_bytes(content)
    rows = JOURNAL if journal is None else journal
    (folder / JOURNAL_NAME).write_bytes(encode_frame(rows) if rows else b"")
    return folder


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content, to see that nothing was changed."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
