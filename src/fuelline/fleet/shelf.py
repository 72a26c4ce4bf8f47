"""The fleet's store: a folder, or a bucket of an object store, with a small Parquet file per run.

    STORE/2026-11/20261119-093015-train-4711.node17.parquet

A month is a folder, so that `--since 30d` opens a fraction of a store of years. A file is written
whole or not at all and is never changed but by the same run; so writers need not know each other,
and a reader needs no index that could be out of date.
"""

from __future__ import annotations

import io
import os
import re
import socket
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import polars as pl

from fuelline.schema.diagnosis.fleet import FleetRun
from fuelline.schema.errors import RefusedError
from fuelline.store.config import is_bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polars._typing import PolarsDataType

    _Read = Callable[[str | list[str]], pl.DataFrame]
    """The rows of files, or of a pattern, that are wanted."""


_COLUMNS: dict[str, PolarsDataType] = {
    "run_id": pl.String, "job": pl.String, "user": pl.String, "host": pl.String,
    "batch_id": pl.String, "chip": pl.String, "devices": pl.Int64, "started_s": pl.Float64,
    "seconds": pl.Float64, "exit_code": pl.Int64, "code": pl.String, "title": pl.String,
    "causes": pl.List(
        pl.Struct({"code": pl.String, "title": pl.String, "lost_seconds": pl.Float64})
    ),
    "samples_per_s": pl.Float64, "advice": pl.String, "gain": pl.Float64, "gain_low": pl.Float64,
    "gain_high": pl.Float64, "joules": pl.Float64,
    "rungs": pl.List(pl.Struct({"rung": pl.String, "share": pl.Float64})),
    "gauges": pl.List(pl.Struct({"kind": pl.String, "place": pl.String, "value": pl.Float64})),
    "fuelline_version": pl.String,
}  # fmt: skip
"""`FleetRun` as columns; a row of an older release has null where it had no such column."""
_SCHEMA = pl.Schema(_COLUMNS)
_NOT_SUMMED = ("batch_id", "code", "title", "gain_low", "gain_high", "rungs", "fuelline_version")
"""What a run by itself is asked for, and a sum of runs is not."""
_SHARED_FILE = 0o644
"""A store is for all who may enter its folder; who that is, the folder says."""
_MOST_MONTHS = 24
_EMPTY = re.compile("expected at least 1 source|expanded paths were empty")
"""How polars says that nothing fits a pattern."""
_AT_ONCE = 2000
"""Files; polars keeps a chunk of each column for each, 14 kB in all, until they are joined."""
_MOST_FILE_BYTES = 1 << 20
"""A row takes 8 kB; what is larger was not written by us."""


class Rows(NamedTuple):
    """Of a store."""

    frame: pl.DataFrame
    skipped: list[str]
    """Files that could not be read."""


def encode_row(run: FleetRun) -> bytes:
    """The file of a run."""
    row = msgspec.to_builtins(run)
    row["rungs"] = [{"rung": rung, "share": share} for rung, share in run.rungs.items()]
    buffer = io.BytesIO()
    pl.DataFrame([row], schema=_SCHEMA).write_parquet(buffer, statistics=False)
    return buffer.getvalue()


def place_of(run: FleetRun) -> str:
    """Where in a store its file is."""
    month = datetime.fromtimestamp(run.started_s, timezone.utc).strftime("%Y-%m")
    return f"{month}/{_plain(run.run_id)}.{_plain(run.host)}.parquet"


def _plain(word: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", word)[:100]


def put(store: str, place: str, content: bytes) -> None:
    """Write a run's file, in place of an earlier one of the same run; OSError if that fails."""
    if is_bucket(store):
        frame = pl.read_parquet(io.BytesIO(content))
        try:
            frame.write_parquet(f"{store.rstrip('/')}/{place}", statistics=False)
        except pl.exceptions.PolarsError as error:
            raise OSError(_first_line(error)) from None
        return
    path = Path(store) / place
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".draft-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), _SHARED_FILE)
            file.write(content)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def load_rows(store: str, since_s: float | None) -> Rows:
    """All runs that were started since then, in columns that can be summed.

    RefusedError if there is no such store.
    """
    first = "" if since_s is None else _month(since_s)
    is_recent = pl.lit(value=True) if since_s is None else pl.col("started_s") >= since_s
    return _load(store, first, is_recent, _NOT_SUMMED)


def _load(store: str, first: str, wanted: pl.Expr, without: Sequence[str] = ()) -> Rows:
    """Sound rows, each run once."""
    is_sound = pl.col("seconds").is_between(0, 1e9) & pl.col("devices").is_between(1, 1_000_000)
    kept = wanted & is_sound & pl.col("started_s").is_finite()

    def read(source: str | list[str]) -> pl.DataFrame:
        return _scan(source).filter(kept).drop(without).collect().rechunk()

    none = _SCHEMA.to_frame().drop(without)
    load = _load_bucket if is_bucket(store) else _load_folder
    frames, skipped = load(store, first, read)
    frame = pl.concat([none, *frames], rechunk=True)
    return Rows(frame.unique(["run_id", "host"], keep="last", maintain_order=True), skipped)


def find_row(store: str, batch_id: str) -> FleetRun | None:
    """The newest run of a batch job, or of this host if there is none; None without such a run."""
    key, wanted = ("batch_id", batch_id) if batch_id else ("host", socket.gethostname())
    fitting = _load(store, "", pl.col(key) == wanted).frame.sort("started_s")
    if not fitting.height:
        return None
    row = {name: value for name, value in fitting.row(-1, named=True).items() if value is not None}
    row["rungs"] = {each["rung"]: each["share"] for each in row.get("rungs", [])}
    return msgspec.convert(row, FleetRun)


def _month(at_s: float) -> str:
    return datetime.fromtimestamp(max(at_s, 0.0), timezone.utc).strftime("%Y-%m")


def _load_folder(store: str, first: str, read: _Read) -> tuple[list[pl.DataFrame], list[str]]:
    folder = Path(store)
    try:
        months = sorted(each.name for each in os.scandir(folder) if _is_month(each.name, first))
        files = [
            each
            for month in months
            for each in os.scandir(folder / month)
            if each.name.endswith(".parquet") and each.is_file(follow_symlinks=False)
        ]
    except OSError as error:
        raise RefusedError(
            f"The store {folder} cannot be read ({error.strerror}). Nothing was summed up. "
            "`fuelline run --store DIR train.py` makes one; check the path and who may enter it."
        ) from None
    large = {each.path for each in files if _is_large(each)}
    frames: list[pl.DataFrame] = []
    skipped = [f"{path}: over {_MOST_FILE_BYTES} bytes" for path in sorted(large)]
    paths = sorted({each.path for each in files} - large)
    for at in range(0, len(paths), _AT_ONCE):
        _read_files(paths[at : at + _AT_ONCE], read, frames, skipped)
    return frames, skipped


def _is_large(file: os.DirEntry[str]) -> bool:
    try:
        return file.stat(follow_symlinks=False).st_size > _MOST_FILE_BYTES
    except OSError:  # gone since: whoever reads it says so
        return False


def _is_month(name: str, first: str) -> bool:
    return re.fullmatch(r"\d{4}-\d\d", name) is not None and name >= first


def _read_files(
    paths: list[str], read: _Read, frames: list[pl.DataFrame], skipped: list[str]
) -> None:
    """All at once; where one is damaged, by halves until it is found."""
    try:
        frames.append(read(paths))
    except (pl.exceptions.PolarsError, OSError) as error:
        if len(paths) == 1:
            skipped.append(f"{paths[0]}: {_first_line(error)}")
            return
        half = len(paths) // 2
        _read_files(paths[:half], read, frames, skipped)
        _read_files(paths[half:], read, frames, skipped)


def _scan(source: str | list[str]) -> pl.LazyFrame:
    return pl.scan_parquet(
        source,
        schema=_SCHEMA,
        missing_columns="insert",
        extra_columns="ignore",
        use_statistics=False,
    )


def _load_bucket(store: str, first: str, read: _Read) -> tuple[list[pl.DataFrame], list[str]]:
    patterns = (f"{store.rstrip('/')}/{month}/*.parquet" for month in _list_months(first))
    found = (_load_month(store, pattern, read) for pattern in patterns)
    return [each for each in found if each is not None], []


def _load_month(store: str, pattern: str, read: _Read) -> pl.DataFrame | None:
    """None if there is nothing of it."""
    try:
        return read(pattern)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = _first_line(error)
    if _EMPTY.search(reason):
        return None
    raise RefusedError(
        f"The store {store} cannot be read ({reason}). Nothing was summed up. Check its name and "
        "your credentials: they come from the environment, such as AWS_ACCESS_KEY_ID, "
        "AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS or AZURE_STORAGE_ACCOUNT_NAME."
    )


def _list_months(first: str) -> list[str]:
    """From this one to the present one; all by one pattern if that is not known, or long ago."""
    now = datetime.now(timezone.utc)
    until = 12 * now.year + now.month - 1
    start = until - _MOST_MONTHS if not first else 12 * int(first[:4]) + int(first[5:]) - 1
    if until - start >= _MOST_MONTHS:
        return ["*"]
    return [f"{each // 12:04d}-{each % 12 + 1:02d}" for each in range(start, until + 1)]


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]
