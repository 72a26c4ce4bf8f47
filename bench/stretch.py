"""A long recording from a short one: its middle is repeated, with clocks and counters going on.

Works on the raw files (spools and journal) as they lie after `fuelline run --quiet`, so that the
result is read, compacted and diagnosed exactly as a run of that length would be.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from fuelline.schema import wire
from fuelline.schema.run import samples
from fuelline.schema.run.journal import decode_frames, encode_frame
from fuelline.schema.run.recording import RUN_FILE, SPOOL_DIR, RunFacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SECOND_NS = 10**9
EDGE_NS = 4 * SECOND_NS
"""Start and end of the short run that are not repeated: workers come and go there."""
RECORD = np.dtype(
    [
        *((name, "<i8") for name in ("start_ns", "dur_ns", "a", "b", "c", "d", "e")),
        ("tid", "<u4"),
        ("flags", "<u2"),
        ("kind", "<u2"),
    ]
)
NOISY = {
    wire.Kind.WAIT: "d",
    wire.Kind.FETCH: "cde",
    wire.Kind.FETCH_IO: "e",
    wire.Kind.HANDOFF: "b",
    wire.Kind.BACKWARD: "b",
}
"""Fields that hold a time, by kind: varied, because exact repeats would compress too well."""
NOISE_FRAC = 0.1
FRAME_ROWS = 2000
COUNTERS: dict[type[samples.Row], tuple[str, ...]] = {
    samples.ThreadClock: ("oncpu_ns", "runq_ns"),
    samples.ProcessClock: (
        "cpu_ns",
        "rchar_bytes",
        "disk_read_bytes",
        "read_calls",
        "wchar_bytes",
        "disk_write_bytes",
        "major_faults",
    ),
}
REPEATED = (
    samples.ThreadState,
    samples.ThreadClock,
    samples.ProcessClock,
    samples.HostSample,
    samples.StackSample,
    samples.OtherProcess,
)
_R = TypeVar("_R")


def stretch(short: Path, long: Path, seconds: float) -> int:
    """Write a recording of about `seconds`; how often the middle was repeated."""
    shutil.rmtree(long, ignore_errors=True)
    (long / SPOOL_DIR).mkdir(parents=True)
    spools = {path: path.read_bytes() for path in (short / SPOOL_DIR).glob(f"*{wire.SUFFIX}")}
    times = np.concatenate([_records(raw)["start_ns"] for raw in spools.values()])
    times = times[times > 0]
    start_ns, end_ns = int(times.min()) + EDGE_NS, int(times.max()) - EDGE_NS
    period_ns = (end_ns - start_ns) // SECOND_NS * SECOND_NS  # windows stay on their grid
    repeats = max(1, round(seconds * SECOND_NS / period_ns))
    middle = (start_ns, start_ns + period_ns)
    for path, raw in spools.items():
        (long / SPOOL_DIR / path.name).write_bytes(_stretch_spool(raw, middle, repeats))
    journal = _stretch_journal((short / samples.JOURNAL_NAME).read_bytes(), middle, repeats)
    (long / samples.JOURNAL_NAME).write_bytes(journal)
    _stretch_run(short, long, (repeats - 1) * period_ns)
    return repeats


def _records(raw: bytes) -> np.ndarray:
    records = np.frombuffer(raw, RECORD, offset=wire.HEADER_BYTES)
    chosen = (records["kind"] != 0) & (records["kind"] != wire.Kind.TEXT)
    return np.asarray(records[chosen])


def _stretch_spool(raw: bytes, middle: tuple[int, int], repeats: int) -> bytes:
    records = np.frombuffer(raw, RECORD, offset=wire.HEADER_BYTES).copy()
    records = records[records["kind"] != 0]
    timed = records["kind"] != wire.Kind.TEXT
    inside = timed & (records["start_ns"] >= middle[0]) & (records["start_ns"] < middle[1])
    after = timed & (records["start_ns"] >= middle[1])
    period_ns = middle[1] - middle[0]
    parts = [
        records[~inside & ~after],
        *(_varied(_shifted(records[inside], n * period_ns), n) for n in range(repeats)),
        _shifted(records[after], (repeats - 1) * period_ns),
    ]
    return raw[: wire.HEADER_BYTES] + np.concatenate(parts).tobytes()


def _shifted(records: np.ndarray, shift_ns: int) -> np.ndarray:
    records = records.copy()
    records["start_ns"] += shift_ns
    return records


def _varied(records: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    factors = rng.uniform(1 - NOISE_FRAC, 1, len(records))
    records["dur_ns"] = records["dur_ns"] * factors
    for kind, names in NOISY.items():
        chosen = records["kind"] == kind
        for name in names:
            records[name][chosen] = records[name][chosen] * factors[chosen]
    return records


def _stretch_journal(raw: bytes, middle: tuple[int, int], repeats: int) -> bytes:
    rows = decode_frames(raw).rows
    inside = [row for row in rows if isinstance(row, REPEATED) and _within(row, middle)]
    growth = _growth(inside)
    period_ns = middle[1] - middle[0]
    stretched = [row for row in rows if not isinstance(row, REPEATED) or _time(row) < middle[0]]
    for repeat in range(repeats):
        stretched += [_later(row, repeat, period_ns, growth) for row in inside]
    stretched += [
        _later(row, repeats - 1, period_ns, growth)
        for row in rows
        if isinstance(row, REPEATED) and _time(row) >= middle[1]
    ]
    return b"".join(encode_frame(batch) for batch in _batches(stretched, FRAME_ROWS))


def _time(row: samples.Row) -> int:
    for name in ("at_ns", "window_ns", "from_ns"):
        if hasattr(row, name):
            return int(getattr(row, name))
    return 0


def _within(row: samples.Row, middle: tuple[int, int]) -> bool:
    return middle[0] <= _time(row) < middle[1]


Key = tuple[object, ...]


def _cells(row: samples.Row) -> Iterator[tuple[Key, float]]:
    """Every counter of a row, under a name of its own."""
    if isinstance(row, samples.HostSample):
        yield from (((name,), value) for name, value in row.values.items())
        return
    who = (getattr(row, "pid", 0), getattr(row, "tid", 0))
    for name in COUNTERS.get(type(row), ()):
        yield (type(row), *who, name), getattr(row, name)


def _growth(rows: Sequence[samples.Row]) -> dict[Key, float]:
    """How much each counter grows in the middle; what falls is a level and does not grow."""
    first: dict[Key, float] = {}
    last: dict[Key, float] = {}
    for row in rows:
        for key, value in _cells(row):
            first.setdefault(key, value)
            last[key] = value
    return {key: max(0.0, last[key] - first[key]) for key in first}


def _later(row: samples.Row, repeat: int, period_ns: int, growth: dict[Key, float]) -> samples.Row:
    names = ("at_ns", "window_ns", "from_ns", "until_ns")
    changed: dict[str, object] = {
        name: getattr(row, name) + repeat * period_ns for name in names if hasattr(row, name)
    }
    grown = {key[-1]: value + repeat * growth.get(key, 0.0) for key, value in _cells(row)}
    if isinstance(row, samples.HostSample):
        changed["values"] = grown
    else:
        changed |= {str(name): int(value) for name, value in grown.items()}
    return msgspec.structs.replace(row, **changed)


def _batches(rows: list[_R], size: int) -> Iterator[list[_R]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _stretch_run(short: Path, long: Path, longer_ns: int) -> None:
    run = msgspec.json.decode((short / RUN_FILE).read_bytes(), type=RunFacts)
    ended_ns = run.ended_ns + longer_ns if run.ended_ns else None
    run = msgspec.structs.replace(run, ended_ns=ended_ns)
    (long / RUN_FILE).write_bytes(msgspec.json.encode(run))
