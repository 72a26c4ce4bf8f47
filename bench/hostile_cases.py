"""Run folders, traces, packs and caches as an enemy would leave them; `bench.hostile` tries them.

A case gets an Arena (a victim's home, canaries outside of it, and sound runs to spoil) and gives
the commands that a victim would type. What may come of them is judged in one place, not here.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import sqlite3
import struct
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl
import zstandard

from fuelline.schema import wire
from fuelline.schema.run import samples
from fuelline.schema.run.journal import decode_frames, encode_frame
from fuelline.schema.run.recording import MANIFEST_FILE, RUN_FILE, SPOOL_DIR
from fuelline.schema.run.samples import JOURNAL_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

CANARY = "CANARY-7d1f-do-not-read"
DEEP = b"[" * 100_000
ESCAPES = "\x1b]0;owned\x07\x1b[31m\u202e\x00[red]\r\n"
OTHER_USER = 65534


@dataclass(frozen=True)
class Arena:
    """One victim."""

    folder: Path
    """Of the case: `home`, `outside` and what the case makes."""
    seeds: dict[str, Path]
    """Sound runs by name (raw, compacted, trace); never to be changed."""
    traces: dict[str, list[bytes]]

    @property
    def outside(self) -> Path:
        """What nobody may read or change."""
        return self.folder / "outside"

    @property
    def secret(self) -> Path:
        """A file of the victim's with the canary in it."""
        return self.outside / "secret.py"

    def take(self, kind: str, name: str = "run") -> Path:
        """A copy of a sound run, to be spoilt."""
        return Path(shutil.copytree(self.seeds[kind], self.folder / name, symlinks=True))

    def put(self, name: str, content: bytes) -> Path:
        """A file beside the runs."""
        path = self.folder / name
        path.write_bytes(content)
        return path


Commands = list[list[str]]


def read_all(run: Path) -> Commands:
    """Every command that reads a run."""
    word = str(run)
    return [
        ["diagnose", word],
        ["diagnose", word, "--json"],
        ["whatif", word, "--workers", "4"],
        ["watch", word, "--once", "--workers"],
        ["compare", word, word, "--markdown"],
        ["export", word, "--perfetto", str(run.parent / "out.json")],
    ]


def _some(run: Path) -> Commands:
    return [["diagnose", str(run)], ["watch", str(run), "--once"]]


def replace_by_link(path: Path, target: Path | str) -> None:
    """Put a link where a file or folder was."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target)


def _sparse(path: Path, size: int, head: bytes = b"") -> None:
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)


def reseal(run: Path) -> None:
    """Make the manifest tell the truth about tables that were changed."""
    path = run / MANIFEST_FILE
    said = json.loads(path.read_bytes())
    for name, facts in said["tables"].items():
        path_of_table = run / f"{name}.parquet"
        if path_of_table.is_symlink() or not path_of_table.is_file():
            continue
        if path_of_table.stat().st_size > 1 << 28:
            continue
        data = path_of_table.read_bytes()
        facts |= {"size_bytes": len(data), "crc32": zlib.crc32(data)}
    path.write_text(json.dumps(said))


def _edit(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_bytes()))))


def _rows(run: Path, *rows: samples.Row) -> None:
    path = run / JOURNAL_NAME
    path.write_bytes(path.read_bytes() + encode_frame(rows))


def _any_spool(run: Path) -> Path:
    return max((run / SPOOL_DIR).iterdir(), key=lambda path: path.stat().st_size)


def _write_table(run: Path, name: str, frame: pl.DataFrame) -> None:
    frame.write_parquet(run / f"{name}.parquet", compression="zstd", statistics=False)
    reseal(run)


# Links, FIFOs, devices, holes


def _links_for_facts(arena: Arena) -> Commands:
    run = arena.take("raw")
    replace_by_link(run / RUN_FILE, arena.seeds["raw"] / RUN_FILE)
    return read_all(run)


def _link_for_manifest(arena: Arena) -> Commands:
    run = arena.take("compacted")
    replace_by_link(run / MANIFEST_FILE, arena.seeds["compacted"] / MANIFEST_FILE)
    return read_all(run)


def _link_for_tables(arena: Arena) -> Commands:
    run = arena.take("compacted")
    for table in run.glob("*.parquet"):
        replace_by_link(table, arena.seeds["compacted"] / table.name)
    return _some(run)


def _link_for_spool(arena: Arena) -> Commands:
    run = arena.take("raw")
    spool = _any_spool(run)
    replace_by_link(spool, arena.secret)
    (run / SPOOL_DIR / "9-9.spool").symlink_to("/dev/zero")
    return _some(run)


def _link_for_spool_folder(arena: Arena) -> Commands:
    run = arena.take("raw")
    shutil.copytree(run / SPOOL_DIR, arena.outside / "spool")
    replace_by_link(run / SPOOL_DIR, arena.outside / "spool")
    return _some(run)


def _link_for_journal(arena: Arena) -> Commands:
    run = arena.take("raw")
    replace_by_link(run / JOURNAL_NAME, "/dev/zero")
    return _some(run)


def _link_for_part(arena: Arena) -> Commands:
    run = arena.folder / "run"
    run.mkdir()
    shutil.copytree(arena.seeds["raw"], arena.outside / "theirs")
    (run / "node-0000").symlink_to(arena.outside / "theirs")
    arena.take("raw", "run/node-0001")
    return _some(run)


def _links_for_notes(arena: Arena) -> Commands:
    run = arena.take("raw")
    (run / "hooks-failed-1.txt").symlink_to(arena.secret)
    (run / "remedies-failed-2.txt").symlink_to("/proc/self/environ")
    os.mkfifo(run / "hooks-failed-3.txt")
    (run / "fix").mkdir()
    (run / "fix" / "1.jsonl").symlink_to(arena.secret)
    os.mkfifo(run / "fix" / "2.jsonl")
    return [["diagnose", str(run), "--json"], ["watch", str(run), "--once"]]


def _planted_drafts(arena: Arena) -> Commands:
    run = arena.take("raw")
    for number in range(1, 3000):
        (run / f".{MANIFEST_FILE}.{number}").symlink_to(arena.secret)
    for name in ("events", "stacks", "host"):
        (run / f"{name}.parquet").symlink_to(arena.secret)
    return [["diagnose", str(run)]]


def _frames_name_secrets(arena: Arena) -> Commands:
    run = arena.take("raw")
    names = (str(arena.secret), "/etc/shadow", "/etc/passwd", "/proc/self/environ", "/dev/zero")
    spool = decode_frames((run / JOURNAL_NAME).read_bytes()).rows
    stacks = [row for row in spool if isinstance(row, samples.StackSample)]
    for stack in stacks:
        frames = [f"main ({name}:1)" for name in names]
        _rows(run, msgspec.structs.replace(stack, frames=[*frames, *stack.frames], count=10_000))
    return [["diagnose", str(run)], ["diagnose", str(run), "--json"]]


def _fifos_everywhere(name: str) -> Callable[[Arena], Commands]:
    def build(arena: Arena) -> Commands:
        run = arena.take("compacted" if name.endswith(("parquet", "manifest.json")) else "raw")
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)
        return _some(run)

    return build


def _fifo_spool(arena: Arena) -> Commands:
    run = arena.take("raw")
    os.mkfifo(run / SPOOL_DIR / "77-77.spool")
    return _some(run)


def _sparse_file(name: str, kind: str, head: bytes = b"") -> Callable[[Arena], Commands]:
    def build(arena: Arena) -> Commands:
        run = arena.take(kind)
        path = _any_spool(run) if name == "spool" else run / name
        start = path.read_bytes()[:4096] if name == "spool" else head
        _sparse(path, 100 << 30, start)
        return _some(run)

    return build


def _sparse_spools_below_the_cap(arena: Arena) -> Commands:
    run = arena.take("raw")
    head = _any_spool(run).read_bytes()[: wire.HEADER_BYTES]
    for number in range(40):
        _sparse(run / SPOOL_DIR / f"{4000 + number}-1.spool", wire.CAP_BYTES, head)
    return _some(run)


# Content


def _deep(name: str, kind: str, content: bytes = DEEP) -> Callable[[Arena], Commands]:
    def build(arena: Arena) -> Commands:
        run = arena.take(kind)
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_bytes(content)
        return [*_some(run), ["diagnose", str(run), "--json"]]

    return build


def _deep_note(arena: Arena) -> Commands:
    """A text in a spool that is a hundred thousand brackets, as the settings of a loader."""
    run = arena.take("raw")
    spool = _any_spool(run)
    content = spool.read_bytes()
    first = wire.HEADER_BYTES
    chunks = [
        wire.TEXT_RECORD.pack(1, len(DEEP), DEEP[at : at + wire.TEXT_CHUNK], 1, number, 13)
        for number, at in enumerate(range(0, len(DEEP), wire.TEXT_CHUNK))
    ]
    kind = int(wire.Kind.TEXT)
    chunks = [chunk[:-2] + struct.pack("<H", kind) for chunk in chunks]
    spool.write_bytes(content[:first] + b"".join(chunks) + content[first:])
    return _some(run)


def _deep_row(arena: Arena) -> Commands:
    run = arena.take("raw")
    payload = b"\x91" * 100_000
    frame = struct.pack("<II", len(payload), zlib.crc32(payload)) + payload
    path = run / JOURNAL_NAME
    path.write_bytes(path.read_bytes() + frame * 3)
    return _some(run)


def _endless_guesses(arena: Arena) -> Commands:
    """Each byte looks like the first of a frame of four megabytes."""
    run = arena.take("raw")
    (run / JOURNAL_NAME).write_bytes(
        struct.pack("<II", 0x3F9191, 0x919191) + b"\x91\x91\x3f\x00" * 5_000_000
    )
    return _some(run)


def _tiny_frames(arena: Arena) -> Commands:
    run = arena.take("raw")
    frame = struct.pack("<II", 1, zlib.crc32(b"\x90")) + b"\x90"
    (run / JOURNAL_NAME).write_bytes(frame * 3_000_000)
    return _some(run)


def _rows_out_of_range(arena: Arena) -> Commands:
    run = arena.take("raw")
    far = (1 << 63) - 1
    _rows(
        run,
        samples.ThreadState(far, 1 << 40, -1, 1000, "x", "y", -5, far),
        samples.ThreadClock(-far, far, far, far, -far),
        samples.HostSample(5, {"cpu.busy_ns": float("nan"), "psi.io.some_us": float("inf")}),
        samples.DeviceSample(5, "gpu0", {"util.gpu_frac": float("nan"), "job.frac": 1e308}),
        samples.ProcessClock(1, far, far, far, far, far, far, far, far, far),
        samples.Limits(0, -5, 0, float("nan"), -1, {"": {"": float("inf")}}),
        samples.StackSample(far, -far, 1, 1, [], far),
        samples.DeviceSeen(1, "gpu0", "", "", memory_bytes=-1, power_cap_watts=float("inf")),
    )
    return read_all(run)


def _facts_out_of_range(arena: Arena) -> Commands:
    run = arena.take("raw")
    _edit(run / RUN_FILE, lambda said: said | {"started_ns": -(10**40), "ended_ns": 10**40})
    return _some(run)


def _times_that_just_fit(arena: Arena) -> Commands:
    run = arena.take("raw")
    edge = {"started_ns": -(1 << 62), "ended_ns": 1 << 62, "started_wall_ns": 1 << 62}
    _edit(run / RUN_FILE, lambda said: said | edge)
    return read_all(run)


def _records_out_of_range(arena: Arena) -> Commands:
    run = arena.take("raw")
    spool = _any_spool(run)
    content = bytearray(spool.read_bytes())
    for at in range(wire.HEADER_BYTES, len(content) - 64, 192):
        content[at + 8 : at + 56] = b"\xff\xff\xff\xff\xff\xff\xff\x7f" * 6
    spool.write_bytes(content)
    return read_all(run)


def _header_claims(arena: Arena) -> Commands:
    run = arena.take("raw")
    spool = _any_spool(run)
    content = bytearray(spool.read_bytes())
    content[12:48] = b"\xff" * 36
    spool.write_bytes(content)
    return _some(run)


def _escapes_everywhere(arena: Arena) -> Commands:
    run = arena.take("compacted")

    def spoil(said: Any) -> Any:
        if isinstance(said, dict):
            return {key: spoil(value) for key, value in said.items()}
        if isinstance(said, list):
            return [spoil(each) for each in said]
        kept = said in ("fuelline-recording", "recorded", "trace", "map", "iterable")
        return said + ESCAPES if isinstance(said, str) and not kept else said

    _edit(run / MANIFEST_FILE, lambda said: spoil(said) | {"tables": said["tables"]})
    for name in ("stacks", "places", "seen", "others"):
        frame = pl.read_parquet(run / f"{name}.parquet")
        texts = pl.selectors.string() + ESCAPES
        frame = frame.with_columns(texts)
        if name == "stacks":
            marked = pl.element().str.replace(r" \(", f"{ESCAPES[:20]} (")
            frame = frame.with_columns(pl.col("frames").list.eval(marked))
        _write_table(run, name, frame)
    return read_all(run)


def _escapes_in_names(arena: Arena) -> Commands:
    run = arena.take("raw", f"run{ESCAPES.replace(chr(0), '')}")
    (run / SPOOL_DIR / "1-1\x1b[31m.spool").write_bytes(b"no")
    return [["diagnose", str(run)], ["watch", str(run), "--once"]]


def _million_blindspots(arena: Arena) -> Commands:
    run = arena.take("compacted")
    spot = {"what": "x", "why": "y", "forbids": "z"}
    _edit(run / MANIFEST_FILE, lambda said: said | {"blindspots": [spot] * 500_000})
    return [["diagnose", str(run)], ["runs"]]


# Parquet


def _bomb_frame(columns: dict[str, pl.DataType], rows: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            name: pl.repeat(None if kind.is_nested() else 1, rows, eager=True).cast(kind)
            for name, kind in columns.items()
        }
    )


def _write_parts(frame: pl.DataFrame, times: int) -> bytes:
    """A Parquet file of so many equal row groups."""
    buffer = io.BytesIO()
    pl.concat([frame.lazy()] * times).sink_parquet(
        buffer, compression="zstd", row_group_size=frame.height, statistics=False
    )
    return buffer.getvalue()


def _table_bomb(arena: Arena) -> Commands:
    run = arena.take("compacted")
    frame = pl.read_parquet(run / "clocks.parquet")
    constant = frame.clear().select(
        pl.lit(1, kind).alias(name) for name, kind in frame.schema.items()
    )
    many = pl.concat([constant] * 1).select(pl.all().repeat_by(5_000_000).explode())
    (run / "clocks.parquet").write_bytes(_write_parts(many, 60))
    reseal(run)
    return _some(run)


def page_bomb(names: tuple[str, ...], page_bytes: int = 1 << 30) -> bytes:
    """A Parquet file by hand: pages of zeros that are packed 30,000 to 1.

    Its footer claims 4 rows; the page, which all columns share, holds 134 million. Thrift's compact
    protocol, as in https://github.com/apache/parquet-format/blob/master/src/main/thrift.
    """
    packed = zstandard.ZstdCompressor(3).compress(bytes(page_bytes))
    values = _i32(page_bytes // 8) + _i32(0) + _i32(3) + _i32(3) + b"\0"
    page = _i32(0) + _i32(page_bytes) + _i32(len(packed)) + b"\x2c" + values + b"\0" + packed
    root = b"\x48\x06schema" + _i32(len(names)) + b"\0"
    leaves, chunks = b"", b""
    for name in names:
        text = bytes([len(name)]) + name.encode()
        leaves += _i32(2) + b"\x25\0\x18" + text + b"\0"
        sizes = _i64(4) + _i64(page_bytes) + _i64(len(page)) + b"\x26" + _zigzag(4)
        meta = _i32(2) + b"\x19\x25\0\x06\x19\x18" + text + _i32(6) + sizes + b"\0"
        chunks += b"\x26" + _zigzag(4) + b"\x1c" + meta + b"\0"
    group = b"\x19" + bytes([len(names) << 4 | 12]) + chunks + _i64(page_bytes) + _i64(4) + b"\0"
    schema = b"\x19" + bytes([len(names) + 1 << 4 | 12]) + root + leaves
    footer = _i32(1) + schema + _i64(4) + b"\x19\x1c" + group + b"\0"
    return b"PAR1" + page + footer + struct.pack("<I", len(footer)) + b"PAR1"


def _zigzag(value: int) -> bytes:
    value <<= 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _i32(value: int) -> bytes:
    """A field that follows the one before it."""
    return b"\x15" + _zigzag(value)


def _i64(value: int) -> bytes:
    return b"\x16" + _zigzag(value)


def _lying_footer(arena: Arena) -> Commands:
    run = arena.take("compacted")
    (run / "clocks.parquet").write_bytes(page_bomb(("at_ns", "oncpu_ns", "runq_ns")))
    reseal(run)
    return _some(run)


def _padded_bomb(arena: Arena) -> Commands:
    """Megabytes beside the tables, so that more seems to lie on the disk."""
    commands = _lying_footer(arena)
    run = Path(commands[0][1])
    (run / "spool").mkdir(exist_ok=True)
    for name in ("padding", "spool/padding"):
        (run / name).write_bytes(b"x" * (60 << 20))
    return commands


_JUNK_BYTES = 60 << 20


def _junk_beside_bomb(*names: str) -> Callable[[Arena], Commands]:
    """Megabytes under names that a reader opens, so that a large bound would seem fair."""

    def build(arena: Arena) -> Commands:
        commands = _lying_footer(arena)
        run = Path(commands[0][1])
        for name in names:
            (run / name).parent.mkdir(exist_ok=True)
            (run / name).write_bytes(os.urandom(_JUNK_BYTES))
        return commands

    return build


def _spools_beside_bomb(arena: Arena) -> Commands:
    """A raw run with 60 MB of sound spools, and a journal of millions of places."""
    run = arena.take("raw")
    content = _any_spool(run).read_bytes()
    head, body = content[: wire.HEADER_BYTES], content[wire.HEADER_BYTES :]
    (run / SPOOL_DIR / "4242-1.spool").write_bytes(head + body * (_JUNK_BYTES // len(body)))
    _fill_journal(run)
    return _some(run)


def _fill_journal(run: Path) -> None:
    """Rows that cannot be joined: each is told once, and all are different."""
    path = run / JOURNAL_NAME
    with path.open("ab") as file:
        for at in range(0, 3_000_000, 10_000):
            rows = [
                samples.Place(n, f"/data/{n}", "/data", "ext4", "8:1")
                for n in range(at, at + 10_000)
            ]
            file.write(encode_frame(rows))


def _journal_of_places(arena: Arena) -> Commands:
    run = arena.take("raw")
    _fill_journal(run)
    return _some(run)


def _traces_beside_bombs(arena: Arena) -> Commands:
    """Junk that is imported side by side with two files that lie about their size."""
    folder = arena.folder / "traces"
    folder.mkdir()
    event = _EVENT % (b"1", b"2")
    (folder / "0.json").write_bytes(_kineto(*[event] * (_JUNK_BYTES // len(event))))
    for number in (1, 2):
        (folder / f"{number}.parquet").write_bytes(page_bomb((*_STRAGGLER, "optype")))
    (folder / "3.junk").write_bytes(os.urandom(_JUNK_BYTES))
    out = str(arena.folder / "imported")
    return [["import", str(folder), "-o", out], ["import", str(folder), "-o", out, "--jobs", "1"]]


def _wide_strings(arena: Arena) -> Commands:
    """Few rows, each a text of many megabytes that packs to nothing."""
    run = arena.take("compacted")
    frame = pl.read_parquet(run / "seen.parquet")
    long = pl.lit("x" * 50_000_000).alias("name")
    many = pl.concat([frame.head(1)] * 60).with_columns(long)
    many.write_parquet(run / "seen.parquet", compression="zstd", use_pyarrow=False)
    reseal(run)
    return _some(run)


def _nulls_and_types(arena: Arena) -> Commands:
    run = arena.take("compacted")
    for name in ("events", "host", "stacks", "states"):
        frame = pl.read_parquet(run / f"{name}.parquet")
        odd = pl.int_range(pl.len()) % 3 == 0
        frame = frame.with_columns(pl.when(odd).then(None).otherwise(pl.all()).name.keep())
        _write_table(run, name, frame)
    return _some(run)


def _other_types(arena: Arena) -> Commands:
    run = arena.take("compacted")
    frame = pl.read_parquet(run / "events.parquet")
    _write_table(run, "events", frame.with_columns(pl.all().cast(pl.String)))
    return _some(run)


def _tables_that_lead_out(arena: Arena) -> Commands:
    run = arena.take("trace")
    _edit(
        run / MANIFEST_FILE,
        lambda said: (
            said
            | {
                "tables": said["tables"]
                | {"../outside/x": {"rows": 1, "size_bytes": 1, "crc32": 1}}
            }
        ),
    )
    return _some(run)


def _trace_of_odd_ranks(arena: Arena) -> Commands:
    run = arena.take("trace")

    def spoil(said: Any) -> Any:
        said["trace"]["ranks"] = [dict(said["trace"]["ranks"][0], rank=n) for n in (0, -1, 10**15)]
        return said

    _edit(run / MANIFEST_FILE, spoil)
    return _some(run)


def _trace_nulls(arena: Arena) -> Commands:
    run = arena.take("trace")
    for path in run.glob("*.parquet"):
        frame = pl.read_parquet(path)
        odd = pl.int_range(pl.len()) % 2 == 0
        frame.with_columns(pl.when(odd).then(None).otherwise(pl.all()).name.keep()).write_parquet(
            path
        )
    reseal(run)
    return _some(run)


# Owners


def _of_another_owner(kind: str) -> Callable[[Arena], Commands]:
    def build(arena: Arena) -> Commands:
        run = arena.take(kind, "theirs")
        if os.geteuid() == 0:
            for path in (run, *run.rglob("*")):
                os.chown(path, OTHER_USER, OTHER_USER)
        else:
            run.chmod(0o777)
        return [["diagnose", str(run)], ["watch", str(run), "--once"]]

    return build


def _store_full_of_bad_runs(arena: Arena) -> Commands:
    store = arena.folder / "home" / "runs"
    store.mkdir(parents=True)
    for number, content in enumerate((DEEP, b"", b"{}", b"\xff", b'{"run":' + DEEP)):
        for file in (RUN_FILE, MANIFEST_FILE):
            (store / f"2{number}-{file}").mkdir()
            (store / f"2{number}-{file}" / file).write_bytes(content)
    (store / "3-fifo").mkdir()
    os.mkfifo(store / "3-fifo" / RUN_FILE)
    (store / "4-zero").mkdir()
    (store / "4-zero" / MANIFEST_FILE).symlink_to("/dev/zero")
    (store / "5-sparse").mkdir()
    _sparse(store / "5-sparse" / RUN_FILE, 100 << 30, b"{")
    (store / "6-loop").symlink_to("6-loop")
    shutil.copytree(arena.seeds["compacted"], store / "1-good")
    return [["runs"], ["watch", "--once"], ["diagnose"], ["diagnose", "1-good"]]


def _undo_of_others(arena: Arena) -> Commands:
    script = arena.outside / "mine.py"
    script.write_text("print('mine')\n")
    folder = arena.folder / "home" / "undo"
    folder.mkdir(parents=True)
    import base64
    import hashlib

    change = {
        "script": str(script),
        "original": base64.b64encode(b"import os  # evil").decode(),
        "changed_sha256": hashlib.sha256(script.read_bytes()).hexdigest(),
        "made_ns": 1,
    }
    (folder / "1.json").write_text(json.dumps(change))
    (folder / "1.json").chmod(0o666)
    (folder / "2.json").write_bytes(DEEP)
    os.mkfifo(folder / "3.json")
    (folder / "4.json").symlink_to("/dev/zero")
    return [["undo"], ["undo", str(script)]]


def _catalogue(arena: Arena) -> Commands:
    chips = arena.folder / "home" / "chips"
    chips.mkdir(parents=True)
    os.mkfifo(chips / "a.toml")
    (chips / "b.toml").symlink_to(arena.secret)
    deep = arena.put("deep.toml", b"a = " + DEEP)
    words = ["plan", "chips", "llama-3.1-8b", "--for", "serve"]
    return [words, [*words, "--catalogue", str(deep)]]


# Traces


def _import(content: bytes, name: str = "trace.json") -> Callable[[Arena], Commands]:
    def build(arena: Arena) -> Commands:
        path = arena.put(name, content)
        out = arena.folder / "imported"
        return [["import", str(path), "-o", str(out)], ["diagnose", str(out)]]

    return build


def _gzip_bomb(arena: Arena) -> Commands:
    head = b'{"traceEvents":[{"ph":"X","name":"'
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9) as file:
        file.write(head)
        for _ in range(2000):
            file.write(b"x" * (1 << 20))
    return _import(buffer.getvalue(), "trace.json.gz")(arena)


def _zstd_bomb(arena: Arena) -> Commands:
    head = b'{"traceEvents":[' + b" " * 1000
    stream = zstandard.ZstdCompressor(19).compressobj()
    data = stream.compress(head)
    data += b"".join(stream.compress(bytes(1 << 20)) for _ in range(4000))
    return _import(data + stream.flush(), "trace.json.zst")(arena)


def _xplane_bomb(arena: Arena) -> Commands:
    data = arena.traces["xplane"][0]
    stream = zstandard.ZstdCompressor(3).compressobj()
    packed = stream.compress(data)
    packed += b"".join(stream.compress(bytes(1 << 20)) for _ in range(4000)) + stream.flush()
    return _import(packed, "trace.pb.zst")(arena)


_STRAGGLER = {
    "dp_rank": pl.Int64(), "stage": pl.Int64(), "rank": pl.Int64(), "step": pl.Int64(),
    "start_ts": pl.Float64(), "duration": pl.Float64(), "seq_id": pl.Int64(),
}  # fmt: skip


def _straggler_bomb(arena: Arena) -> Commands:
    frame = _bomb_frame(dict(_STRAGGLER), 4_000_000).with_columns(optype=pl.lit("gc"))
    return _import(_write_parts(frame, 30), "bomb.parquet")(arena)


def _straggler_of_many_ranks(arena: Arena) -> Commands:
    frame = _bomb_frame(dict(_STRAGGLER), 400_000).with_columns(
        optype=pl.lit("forward-compute"), rank=pl.int_range(400_000)
    )
    return _import(_write_parts(frame, 1), "ranks.parquet")(arena)


def _straggler_lies(arena: Arena) -> Commands:
    return _import(page_bomb((*_STRAGGLER, "optype")), "lies.parquet")(arena)


def _sqlite_views(arena: Arena) -> Commands:
    path = arena.folder / "trace.sqlite"
    with sqlite3.connect(path) as base:
        endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
        names = ("CUPTI_ACTIVITY_KIND_KERNEL", "StringIds", "TARGET_INFO_GPU", "NVTX_EVENTS")
        for name in names:
            base.execute(f"CREATE VIEW {name} AS {endless}")
        for name in ("META_DATA_CAPTURE", "EXPORT_META_DATA", "META_DATA_EXPORT"):
            base.execute(f"CREATE TABLE {name} (name TEXT, value TEXT)")
        base.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, streamId INT AS "
            "(length(hex(zeroblob(400000000)))))"
        )
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, end) VALUES (1, 2)")
    base.close()
    out = arena.folder / "imported"
    return [["import", str(path), "-o", str(out)], ["diagnose", str(out)]]


def _folder_of_links(arena: Arena) -> Commands:
    folder = arena.folder / "traces"
    folder.mkdir()
    (arena.outside / "private.json").write_bytes(arena.traces["kineto"][0])
    (folder / "a.json").symlink_to(arena.outside / "private.json")
    (folder / "b.json").symlink_to("/dev/zero")
    (folder / "up").symlink_to("..")
    os.mkfifo(folder / "c.json")
    _sparse(folder / "d.json", 100 << 30, b'{"traceEvents":[')
    return [["import", str(folder), "-o", str(arena.folder / "imported")]]


def _fifo_trace(arena: Arena) -> Commands:
    path = arena.folder / "trace.json"
    os.mkfifo(path)
    out = str(arena.folder / "imported")
    return [
        ["import", str(path), "-o", out],
        ["compare", str(path), str(path)],
        ["import", "/dev/zero"],
    ]


def _sparse_traces(arena: Arena) -> Commands:
    heads = {
        "a.json": b'{"traceEvents":[',
        "b.json": b'{"traceEvents":[{"ph":"X","name":"',
        "c.parquet": b"PAR1",
        "d.sqlite": b"SQLite format 3\0",
        "e.pb": arena.traces["xplane"][0][:200],
        "f.prom": b'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 91\n',
    }
    commands = []
    for name, head in heads.items():
        _sparse(arena.folder / name, 100 << 30, head)
        commands.append(["import", str(arena.folder / name), "-o", str(arena.folder / "imported")])
    return commands


_EVENT = (
    b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%s,"dur":%s,"args":{"device":0}}'
)


def _kineto(*events: bytes, before: bytes = b"", after: bytes = b"") -> bytes:
    return (
        b'{"schemaVersion":1,'
        + before
        + b'"traceEvents":['
        + b",".join(events)
        + b"]"
        + after
        + b"}"
    )


# Packs and caches: the job must see what it would see without them


def _job(arena: Arena) -> Path:
    data = arena.folder / "data"
    data.mkdir()
    for number in range(20):
        (data / f"{number}.bin").write_bytes(bytes([number]) * (1000 + number))
    return arena.put(
        "job.py",
        b"import hashlib, os, sys\n"
        b"for name in sorted(os.listdir(sys.argv[1])):\n"
        b"    digest = hashlib.sha256()\n"
        b"    with open(os.path.join(sys.argv[1], name), 'rb') as file:\n"
        b"        while piece := file.read(1 << 20):\n"
        b"            digest.update(piece)\n"
        b"    print(name, digest.hexdigest())\n",
    )


def _packed(spoil: Callable[[Path], None]) -> Callable[[Arena], Commands]:
    def build(arena: Arena) -> Commands:
        job, pack = _job(arena), arena.folder / "pack"
        data = str(arena.folder / "data")
        arena.put("plain", b"")
        return [
            ["pack", data, "-o", str(pack)],
            ["!spoil", lambda: spoil(pack)],  # type: ignore[list-item]
            ["run", "--quiet", "--packed", str(pack), str(job), data],
        ]

    return build


def _packed_large(arena: Arena) -> Commands:
    """A file that is compared once, not by each process: damaged before it was, and after."""
    commands = _packed(_flip_unseen)(arena)
    with (arena.folder / "data" / "large.bin").open("wb") as file:
        file.truncate((256 << 20) + 1)
    pack, spoil, run = commands
    return [pack, spoil, run, spoil, run, spoil, run]  # wrong, right again, wrong


def _flip_unseen(pack: Path) -> None:
    """One byte of a large shard, and the time set back, as tools that copy do."""
    time.sleep(2.5)  # what was changed a moment ago is not recorded
    (large,) = (path for path in pack.glob("shard-*") if path.stat().st_size > 256 << 20)
    before = large.stat()
    with large.open("r+b") as file:
        file.seek(200 << 20)
        byte = file.read(1)[0]
        file.seek(200 << 20)
        file.write(bytes([byte ^ 1]))
    os.utime(large, ns=(before.st_atime_ns, before.st_mtime_ns))
    time.sleep(2.5)


def _fill_slots(pack: Path) -> None:
    """No empty slot: probing for what is not there never ends."""
    from fuelline.schema import shards

    content = bytearray((pack / shards.INDEX).read_bytes())
    head = shards.HEADER.unpack_from(content)
    count, slots = head[3], head[4]
    start = shards.round_up(shards.HEADER.size + head[6]) + count * shards.ENTRY.size
    content[start : start + slots * shards.SLOT.size] = shards.SLOT.pack(1) * slots
    (pack / shards.INDEX).write_bytes(content)


def _spoil_index(start: int, filling: bytes) -> Callable[[Path], None]:
    def spoil(pack: Path) -> None:
        from fuelline.schema import shards

        content = bytearray((pack / shards.INDEX).read_bytes())
        content[start : start + len(filling)] = filling
        (pack / shards.INDEX).write_bytes(content)

    return spoil


def _cut_shards(pack: Path) -> None:
    for shard in pack.glob("shard-*"):
        shard.write_bytes(shard.read_bytes()[:500])


def _flip_shards(pack: Path) -> None:
    for shard in pack.glob("shard-*"):
        shard.write_bytes(bytes(255 - value for value in shard.read_bytes()))


def _cached(spoil: Callable[[Path], None], *, first: bool) -> Callable[[Arena], Commands]:
    """A cache that was spoilt before its first use, or after it."""

    def build(arena: Arena) -> Commands:
        job, cache = _job(arena), arena.folder / "cache"
        data = str(arena.folder / "data")
        run = ["run", "--quiet", "--cache", str(cache), "--cache-from", data, str(job), data]
        time.sleep(2.5)  # what was changed a moment ago is not cached
        change: list[Any] = ["!spoil", lambda: spoil(cache)]
        return [change, run] if first else [run, change, run]

    return build


def _open_cache(cache: Path) -> None:
    cache.mkdir(exist_ok=True)
    cache.chmod(0o777)


def _foreign_cache(cache: Path) -> None:
    cache.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        os.chown(cache, OTHER_USER, OTHER_USER)


def _objects_of_others(cache: Path) -> None:
    """What is in the cache becomes somebody else's content, a link or a FIFO, in turns."""
    objects = sorted(path for path in (cache / "objects").rglob("*") if path.is_file())
    assert objects, "nothing was cached: the case would show nothing"
    for number, path in enumerate(objects):
        if number % 3 == 0:
            path.write_bytes(b"evil" * (path.stat().st_size // 4 + 1))
        else:
            path.unlink()
            path.symlink_to("/etc/passwd") if number % 3 == 1 else os.mkfifo(path)


CASES: dict[str, Callable[[Arena], Commands]] = {
    "run.json is a link": _links_for_facts,
    "manifest is a link": _link_for_manifest,
    "tables are links": _link_for_tables,
    "a spool is a link": _link_for_spool,
    "the spool folder is a link": _link_for_spool_folder,
    "the journal is /dev/zero": _link_for_journal,
    "a host's part is a link": _link_for_part,
    "notes and fixes are links and FIFOs": _links_for_notes,
    "links wait for drafts": _planted_drafts,
    "frames name secrets": _frames_name_secrets,
    **{
        f"{name} is a FIFO": _fifos_everywhere(name)
        for name in (RUN_FILE, JOURNAL_NAME, MANIFEST_FILE, "events.parquet")
    },
    "a spool is a FIFO": _fifo_spool,
    "run.json has 100 GB of holes": _sparse_file(RUN_FILE, "raw", b"{"),
    "manifest has 100 GB of holes": _sparse_file(MANIFEST_FILE, "compacted", b"{"),
    "the journal has 100 GB of holes": _sparse_file(JOURNAL_NAME, "raw"),
    "a spool has 100 GB of holes": _sparse_file("spool", "raw"),
    "a table has 100 GB of holes": _sparse_file("events.parquet", "compacted", b"PAR1"),
    "forty spools of holes": _sparse_spools_below_the_cap,
    "deep run.json": _deep(RUN_FILE, "raw"),
    "deep inside run.json": _deep(
        RUN_FILE, "raw", b'{"format":"fuelline-recording","version":1,"x":' + DEEP
    ),
    "deep manifest": _deep(MANIFEST_FILE, "compacted", b'{"a":' * 100_000),
    "deep fixes": _deep("fix/1.jsonl", "raw", DEEP + b"\n" + b'{"event":' + DEEP),
    "deep note in a spool": _deep_note,
    "deep row in the journal": _deep_row,
    "a journal of endless guesses": _endless_guesses,
    "a journal of tiny frames": _tiny_frames,
    "rows out of range": _rows_out_of_range,
    "facts out of range": _facts_out_of_range,
    "times that just fit": _times_that_just_fit,
    "records out of range": _records_out_of_range,
    "a spool's header claims all": _header_claims,
    "escapes in all texts": _escapes_everywhere,
    "escapes in file names": _escapes_in_names,
    "half a million blindspots": _million_blindspots,
    "a table of equal rows": _table_bomb,
    "a table whose footer lies": _lying_footer,
    "a table whose footer lies, padded": _padded_bomb,
    "junk lifts the bound: tables": _junk_beside_bomb("junk.parquet", "node-0001/events.parquet"),
    "junk lifts the bound: spools": _junk_beside_bomb("spool/1.spool", "spool/2-2.spool"),
    "junk lifts the bound: journal": _junk_beside_bomb(JOURNAL_NAME, "junk.journal"),
    "junk lifts the bound: fixes": _junk_beside_bomb("fix/1.jsonl"),
    "junk lifts the bound: sound spools": _spools_beside_bomb,
    "junk lifts the bound: traces": _traces_beside_bombs,
    "a journal of millions of places": _journal_of_places,
    "a table of long texts": _wide_strings,
    "tables with nulls": _nulls_and_types,
    "tables of other types": _other_types,
    "tables that lead out": _tables_that_lead_out,
    "ranks that cannot be": _trace_of_odd_ranks,
    "an imported run with nulls": _trace_nulls,
    "a raw run of another owner": _of_another_owner("raw"),
    "a compacted run of another owner": _of_another_owner("compacted"),
    "a store full of bad runs": _store_full_of_bad_runs,
    "undo of others": _undo_of_others,
    "catalogues of others": _catalogue,
    "gzip bomb": _gzip_bomb,
    "zstd bomb": _zstd_bomb,
    "xplane bomb": _xplane_bomb,
    "straggler bomb": _straggler_bomb,
    "straggler of 400,000 ranks": _straggler_of_many_ranks,
    "straggler whose footer lies": _straggler_lies,
    "endless views in SQLite": _sqlite_views,
    "a folder of links": _folder_of_links,
    "a FIFO as a trace": _fifo_trace,
    "traces of 100 GB of holes": _sparse_traces,
    "deep events": _import(_kineto(_EVENT % (b"1", b"2"), b'{"args":' * 100_000)),
    "deep metadata": _import(_kineto(_EVENT % (b"1", b"2"), before=b'"x":' + DEEP + b",")),
    "deep metadata that ends": _import(
        _kineto(_EVENT % (b"1", b"2"), before=b'"x":' + b"[" * 900 + b"]" * 900 + b",")
    ),
    "numbers without end": _import(
        _kineto(_EVENT % (b"9" * 100_000, b"1e308"), _EVENT % (b"1", b"2"))
    ),
    "escapes in a trace": _import(
        _kineto(_EVENT % (b"1", b"2000")).replace(b'"k"', json.dumps("k" + ESCAPES).encode())
    ),
    "a pack without an empty slot": _packed(_fill_slots),
    "a pack whose entries lead nowhere": _packed(_spoil_index(4096, b"\xff" * 200)),
    "a pack with a header of ones": _packed(_spoil_index(8, b"\xff" * 40)),
    "a pack with shards cut short": _packed(_cut_shards),
    "a pack with other bytes": _packed(_flip_shards),
    "a pack with another byte in a large file": _packed_large,
    "a cache that all can write": _cached(_open_cache, first=True),
    "a cache of another owner": _cached(_foreign_cache, first=True),
    "a cache with others' objects": _cached(_objects_of_others, first=False),
}
"""By name; `!spoil` among the commands is done by us."""
