"""What both of ROCm's formats have in common: rows of the device and of the host, and chips.

Grids are counted in threads, so they are divided by the workgroup's. A dispatch and the call that
launched it share a number (`correlation_id.internal`, a database's `stack_id`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fuelline.ingest.name_book import NameBook
from fuelline.ingest.spans import keep_sane, write
from fuelline.schema.run.trace import CopyDirection, DeviceKind, HostKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuelline.ingest.importer import PartWriter

Row = tuple[int | None, ...]
_PART_ROWS = 100_000
_COLUMNS = {
    "device": (
        *("device", "stream", "start_ns", "end_ns", "name", "kind", "correlation"),
        *("size_bytes", "direction", "blocks", "threads"),
    ),
    "host": ("thread", "start_ns", "end_ns", "name", "kind", "correlation"),
}
_MOST = 1 << 62


class RocmTables:
    """Rows that wait to be written."""

    def __init__(self, rank: int, writer: PartWriter) -> None:
        self.rank = rank
        self.names = NameBook()
        self.events = 0
        self.insane = 0
        self._writer = writer
        self._rows: dict[str, list[Row]] = {"device": [], "host": []}

    def kernel(
        self,
        where: tuple[int, int],
        span: tuple[int, int],
        name: str,
        correlation: int | None,
        sizes: tuple[Sequence[object], Sequence[object]],
    ) -> None:
        """A dispatch on a device and queue, with its grid and workgroup."""
        grid, group = (_product(each) for each in sizes)
        blocks = grid // group if grid and group else None
        row = (*where, *span, self.names.number(name), int(DeviceKind.KERNEL), correlation)
        self._add("device", (*row, None, None, blocks, group))

    def copy(
        self,
        where: tuple[int, int],
        span: tuple[int, int],
        name: str,
        correlation: int | None,
        size_bytes: int | None,
    ) -> None:
        """A copy; its name says which way it goes."""
        row = (*where, *span, self.names.number(name), int(DeviceKind.COPY), correlation)
        self._add("device", (*row, size_bytes, int(_direction(name)), None, None))

    def call(
        self, thread: int, span: tuple[int, int], name: str, kind: HostKind, correlation: int | None
    ) -> None:
        """What the host did."""
        self._add("host", (thread, *span, self.names.number(name), int(kind), correlation))

    def finish(self) -> None:
        """Write what waits."""
        for table in self._rows:
            self._write(table)
        self._writer.add("names", self.rank, self.names.frame())

    def _add(self, table: str, row: Row) -> None:
        self.events += 1
        rows = self._rows[table]
        rows.append(tuple(_fit(value) for value in row))
        if len(rows) >= _PART_ROWS:
            self._write(table)

    def _write(self, table: str) -> None:
        rows, self._rows[table] = self._rows[table], []
        schema = dict.fromkeys(_COLUMNS[table], pl.Int64)
        whole = pl.DataFrame(rows, schema=schema, orient="row").drop_nulls(["start_ns", "end_ns"])
        kept, dropped = keep_sane(whole)
        self.insane += dropped + len(rows) - whole.height
        write(self._writer, table, self.rank, kept)


def find_host_kind(name: str) -> HostKind:
    """Calls of the runtime, markers of the user, and what else was traced."""
    if name.startswith(("hip", "hsa", "rccl", "nccl")):
        return HostKind.RUNTIME
    return HostKind.OTHER


def _direction(name: str) -> CopyDirection:
    return next((way for word, way in _WAYS if word in name.upper()), CopyDirection.UNKNOWN)


_WAYS = (
    ("HOST_TO_DEVICE", CopyDirection.HOST_TO_DEVICE),
    ("DEVICE_TO_HOST", CopyDirection.DEVICE_TO_HOST),
    ("DEVICE_TO_DEVICE", CopyDirection.DEVICE_TO_DEVICE),
)


def _product(sizes: Sequence[object]) -> int | None:
    result = 1
    for size in sizes:
        if not isinstance(size, int) or not 0 < size < _MOST:
            return None
        result *= size
    return result if result < _MOST else None


def _fit(value: int | None) -> int | None:
    return value if isinstance(value, int) and -_MOST < value < _MOST else None
