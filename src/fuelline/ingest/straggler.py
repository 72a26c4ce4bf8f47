"""ByteDance's op-level traces: one Parquet file per job, one row per operation of one worker.

    dp_rank stage rank step optype           start_ts duration seq_id mc mb_id gmc
          0     1    2   23 forward-compute  0.114038 0.065648      0  0     0   1

Times are seconds from the beginning of each step, and steps are sampled, so they are laid end to
end. A worker is a rank; what exchanges data gets the group that it meets in and a number there, so
that waiting can be separated from transfer. Fields as https://github.com/ByteDance-Seed/StragglerAnalysis
describes them; of each tensor-parallel group one rank is recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.ingest.importer import Imported
from fuelline.ingest.name_book import NameBook
from fuelline.ingest.parquet import ERRORS, MOST_TABLE_BYTES, brief, find_bomb
from fuelline.ingest.spans import describe_insane, keep_sane, write
from fuelline.ingest.unpack import refuse_packed
from fuelline.schema.errors import InputError
from fuelline.schema.files import read_given
from fuelline.schema.run.trace import DeviceKind, HostKind, Quality, RankFacts, SourceFacts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fuelline.ingest.importer import PartWriter

MAGIC = b"PAR1"
_COLUMNS = {
    "dp_rank": pl.Int64,
    "stage": pl.Int64,
    "rank": pl.Int64,
    "step": pl.Int64,
    "optype": pl.String,
    "start_ts": pl.Float64,
    "duration": pl.Float64,
    "seq_id": pl.Int64,
}
_SECOND_NS = 1e9
_MOST_SECONDS = 1e8
_MOST_NUMBER = 10_000_000
"""Of ranks, stages and replicas."""
_MOST_WORKERS = 8192
"""Each becomes four files; larger jobs than this are not in the public traces."""
_ON_HOST = ("gc",)
"""Python's garbage collection: the worker stands still, its device has nothing to do."""
_COMPUTES = ("forward-compute", "backward-compute", "optimizer")
_BOTH_SIDES = {
    "forward-send": "forward-pp-comm",
    "forward-recv": "forward-pp-comm",
    "backward-send": "backward-pp-comm",
    "backward-recv": "backward-pp-comm",
}
"""A send and its receive are one exchange, and named as such (as the authors' results do)."""
_OVER_REPLICAS = ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce")
_MOST_NAME_BYTES = 200
"""The names of operations have up to 27."""
_MOST_SEQUENCE = 1 << 20
"""Operations of one type in one step of one worker; more are damage."""


class StragglerTraces:
    """The importer of these Parquet files."""

    format = "straggler"

    def recognises(self, head: bytes) -> bool:
        """Any Parquet file; whether it is one of these shows in its columns."""
        return head.startswith(MAGIC)

    def read(
        self,
        path: Path,
        rank: int,
        writer: PartWriter,
        *,
        partial: bool,
        advance: Callable[[int], None],
    ) -> Imported:
        """See `Importer`; a Parquet file without its end cannot be read, `partial` or not."""
        refuse_packed(path)
        frame = _load(path)
        advance(path.stat().st_size)
        steps, laid = _lay_out(frame)
        kept, insane = keep_sane(laid)
        if not kept.height:
            raise InputError(
                f"{path} was read to its end at byte {path.stat().st_size}, and all of its "
                f"{insane} operations end before they start, or lie centuries away. Nothing was "
                "imported. Look at start_ts and duration."
            )
        names = NameBook()
        kept = kept.with_columns(pl.col("optype").replace(_BOTH_SIDES))
        texts = [
            *kept["optype"].unique(maintain_order=True),
            *kept["group_text"].drop_nulls().unique(maintain_order=True),
        ]
        numbers = {text: names.number(text) for text in texts}
        named = kept.with_columns(
            name=pl.col("optype").replace_strict(numbers, return_dtype=pl.UInt32),
            sequence=pl.when(pl.col("group_text").is_not_null()).then("sequence"),
            group=pl.col("group_text").replace_strict(
                numbers, default=None, return_dtype=pl.UInt32
            ),
        )
        facts = []
        for (number,), own in named.partition_by("rank", as_dict=True, maintain_order=True).items():
            on_host = pl.col("optype").is_in(_ON_HOST)
            lasted = pl.col("end_ns") > pl.col("start_ns")
            write(writer, "device", number, own.filter(~on_host))
            write(writer, "host", number, _as_host(own.filter(on_host & lasted)))
            write(writer, "steps", number, steps)
            writer.add("names", number, names.frame())
            facts.append(_describe(number, own))
        return Imported(
            source=SourceFacts(
                file=path.name,
                format=self.format,
                size_bytes=path.stat().st_size,
                ranks=sorted(each.rank for each in facts),
                events=frame.height,
            ),
            ranks=sorted(facts, key=lambda each: each.rank),
            quality=[*describe_insane(insane), _sampled(frame, steps.height)],
        )


def _load(path: Path) -> pl.DataFrame:
    """The columns that are needed, in our types."""
    try:
        data = read_given(path, MOST_TABLE_BYTES)
        schema = pl.read_parquet_schema(data)
        missing = sorted(set(_COLUMNS) - set(schema))
        if missing:
            raise InputError(
                f"{path} is a Parquet file whose schema, at byte {_find_footer(data)}, lacks the "
                f"columns {', '.join(missing)}, so it is no trace of operations. Nothing was "
                "imported. docs/import.md lists the columns."
            )
        bomb = find_bomb(data)
        if bomb is not None:
            raise InputError(
                f"{path}: at byte {_find_footer(data)} it claims {bomb} rows, in {len(data)} "
                "bytes; no real trace does, and they would fill the memory. Nothing was "
                "imported. Get the file again from where it was recorded."
            )
        frame = pl.read_parquet(data, columns=list(_COLUMNS)).select(
            pl.col(name).cast(kind, strict=False) for name, kind in _COLUMNS.items()
        )
    except ERRORS as error:
        raise InputError(
            f"{path}: not a whole Parquet file, read to byte {path.stat().st_size} "
            f"({brief(error)}). Nothing was imported. Such a file has its table of "
            "contents at the end, so --partial cannot read one that was cut short. Copy it again."
        ) from None
    if not frame.height:
        raise InputError(
            f"{path} was read to its end at byte {len(data)} and holds no operation. Nothing was "
            "imported. Record it again."
        )
    workers = frame["rank"].n_unique()
    if workers > _MOST_WORKERS:
        raise InputError(
            f"{path} (columns up to byte {_find_footer(data)}) has {workers} workers, more "
            f"than {_MOST_WORKERS}. Nothing was imported. Split the trace by its column rank."
        )
    return _checked(path, frame, _find_footer(data))


def _find_footer(data: bytes) -> int:
    """Where the columns end and the schema begins: its length stands before the last four bytes.

    https://parquet.apache.org/docs/file-format. Polars does not say where a row is.
    """
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def _checked(path: Path, frame: pl.DataFrame, end: int) -> pl.DataFrame:
    """Refuse a row without a worker, a step, a name or a time: what it means cannot be guessed.

    A long name is none: it is repeated in the groups of all rows, and packed as if it were one.
    """
    good = (
        pl.col("dp_rank").is_between(0, _MOST_NUMBER)
        & pl.col("stage").is_between(0, _MOST_NUMBER)
        & pl.col("rank").is_between(0, _MOST_NUMBER)
        & pl.col("seq_id").is_between(0, _MOST_SEQUENCE - 1)
        & pl.col("step").is_not_null()
        & (pl.col("optype").str.len_bytes() <= _MOST_NAME_BYTES)
        & pl.col("start_ts").abs().is_between(0, _MOST_SECONDS)
        & pl.col("duration").abs().is_between(0, _MOST_SECONDS)
    )
    bad = frame.with_row_index("row").filter(~good.fill_null(value=False))
    if bad.height:
        first = bad.row(0, named=True)
        said = ", ".join(f"{name}={first[name]!r:.20}" for name in _COLUMNS)
        raise InputError(
            f"{path}, row {first['row']} (in the columns from byte 4 to byte {end}): {said} cannot "
            "be. Nothing was imported. The file is damaged, or not a trace of operations."
        )
    return frame


def _lay_out(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Steps, and operations on one clock with the groups that they meet in.

    | step | start_ts | duration |      | start_ns | end_ns |
    | 23   | 0.0      | 2.0      |  ->  | 0        | 2e9    |
    | 25   | 0.0      | 2.0      |      | 2e9      | 4e9    |
    """
    start = (pl.col("start_ts") * _SECOND_NS).round().cast(pl.Int64)
    end = ((pl.col("start_ts") + pl.col("duration")) * _SECOND_NS).round().cast(pl.Int64)
    timed = frame.with_columns(start_ns=start, end_ns=end)
    steps = (
        timed.group_by("step")
        .agg(pl.col("start_ns").min().alias("first"), pl.col("end_ns").max().alias("last"))
        .sort("step")
        .with_columns(wall=(pl.col("last") - pl.col("first")).clip(0))
        .with_columns(start_ns=pl.col("wall").cum_sum() - pl.col("wall"))
        .with_columns(end_ns=pl.col("start_ns") + pl.col("wall"))
        .with_row_index("place")
    )
    shift = steps.select("step", "place", (pl.col("start_ns") - pl.col("first")).alias("shift"))
    laid = (
        timed.join(shift, on="step")
        .with_columns(
            start_ns=pl.col("start_ns") + pl.col("shift"),
            end_ns=pl.col("end_ns") + pl.col("shift"),
            device=pl.lit(0),
            stream=pl.lit(0),
            group_text=_group(int(frame["stage"].max()) + 1),  # type: ignore[arg-type]
            sequence=pl.col("place").cast(pl.Int64) * _MOST_SEQUENCE + pl.col("seq_id"),
            kind=pl.when(pl.col("optype").is_in(_COMPUTES))
            .then(int(DeviceKind.COMPUTE))
            .otherwise(int(DeviceKind.COMMUNICATION)),
        )
        .sort("rank", "start_ns", "end_ns")
    )
    return steps.select("step", "start_ns", "end_ns"), laid


def _group(stages: int) -> pl.Expr:
    """Who an operation meets: a neighbour stage, all replicas of its stage, all of its replica.

    What has no group here (layernorm gradients) meets ranks that are not recorded.
    """
    kind, stage, replica = pl.col("optype"), pl.col("stage"), pl.col("dp_rank")
    behind, ahead = (stage + stages - 1) % stages, (stage + 1) % stages
    hop = "{} dp{} {}>{}"
    ways = {
        "forward-send": pl.format(hop, pl.lit("forward"), replica, stage, ahead),
        "forward-recv": pl.format(hop, pl.lit("forward"), replica, behind, stage),
        "backward-send": pl.format(hop, pl.lit("backward"), replica, stage, behind),
        "backward-recv": pl.format(hop, pl.lit("backward"), replica, ahead, stage),
        **dict.fromkeys(_OVER_REPLICAS, pl.format("{} stage {}", kind, stage)),
        "embedding-grads-all-reduce": pl.format("{} dp{}", kind, replica),
        "optimizer-clip-main-grad": kind,
    }
    return pl.coalesce(pl.when(kind == name).then(way) for name, way in ways.items())


def _as_host(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(thread=pl.lit(0), kind=pl.lit(int(HostKind.PYTHON)))


def _describe(number: int, own: pl.DataFrame) -> RankFacts:
    return RankFacts(
        rank=number,
        settings={"stage": str(own["stage"][0]), "dp_rank": str(own["dp_rank"][0])},
    )


def _sampled(frame: pl.DataFrame, steps: int) -> Quality:
    numbers = frame["step"].unique().sort()
    span = int(numbers[-1]) - int(numbers[0]) + 1
    return Quality(
        problem=f"{steps} of {span} steps were recorded, and one rank of each tensor-parallel "
        "group; they are laid end to end",
        forbids="time between steps, and anything inside an operation",
        code="sampled",
    )
