"""The databases of `rocprofv3` since ROCm 7 (`rocpd`): one process a file, by its tables.

Names of tables end in the recording's own number (`rocpd_kernel_dispatch_0190...`). Views are not
trusted, so they are read with that. Version 4 of the schema keeps times in a table of their own.

https://rocm.docs.amd.com/projects/rocprofiler-sdk (using rocpd output format).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuelline.ingest.importer import Imported
from fuelline.ingest.nsight.database import MAGIC, Database
from fuelline.ingest.rocm.rows import RocmTables, find_host_kind
from fuelline.ingest.spans import describe_insane
from fuelline.ingest.unpack import refuse_packed
from fuelline.schema.errors import InputError
from fuelline.schema.run.trace import ChipFacts, Quality, RankFacts, SourceFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fuelline.ingest.importer import PartWriter

_PREFIX = b"rocpd_"
_NUMBERS = (
    *("workgroup_size_x", "workgroup_size_y", "workgroup_size_z"),
    *("grid_size_x", "grid_size_y", "grid_size_z"),
)


class RocpdDatabase(Database):
    """One recording; its tables by their names without its number."""

    def error(self, what: str) -> InputError:
        """A file that is not what it should be."""
        return InputError(
            f"{self.path}: {what}. Nothing was imported. Record it again with `rocprofv3 "
            "--sys-trace`."
        )

    def find(self, name: str) -> str:
        """The whole name of a table; empty if there is none."""
        own = [table for table in self._tables if table == name or table.startswith(f"{name}_")]
        return min(own, key=len, default="")


class Rocpd:
    """The importer of rocprofv3's databases."""

    format = "rocpd"

    def recognises(self, head: bytes) -> bool:
        """An SQLite database whose schema, at the front, has such tables."""
        return head.startswith(MAGIC) and _PREFIX in head

    def read(
        self,
        path: Path,
        rank: int,
        writer: PartWriter,
        *,
        partial: bool,
        advance: Callable[[int], None],
    ) -> Imported:
        """See `Importer`."""
        refuse_packed(path)
        database = RocpdDatabase(path, partial=partial)
        try:
            found = _RocpdReading(database, rank, writer).read()
        finally:
            database.close()
        advance(found.source.size_bytes)
        return found


class _RocpdReading:
    """One file on its way into tables."""

    def __init__(self, database: RocpdDatabase, rank: int, writer: PartWriter) -> None:
        self._database = database
        self._tables = RocmTables(rank, writer)
        self._strings = dict(self._select("rocpd_string", "id", "string"))
        self._stacks = dict(self._select("rocpd_event", "id", "stack_id"))
        self._times = dict(self._select("rocpd_timestamp", "id", "value"))
        self._devices: dict[object, int] = {}
        self._chips: list[ChipFacts] = []

    def read(self) -> Imported:
        """All tables."""
        self._read_agents()
        self._read_kernels()
        self._read_copies()
        for thread, name, start, end, event in self._spans("rocpd_region", "tid", "name_id"):
            text = str(self._strings.get(name, ""))
            kind = find_host_kind(text)
            self._tables.call(_whole(thread), (start, end), text, kind, self._stack(event))
        self._tables.finish()
        database, tables = self._database, self._tables
        if not tables.events:
            raise database.error(
                f"it holds no kernel, copy or call up to its end at byte {database.size_bytes}"
            )
        lost = [
            Quality(problem=text, forbids="totals over the whole trace", code="truncated")
            for text in database.problems
        ]
        return Imported(
            source=SourceFacts(
                file=database.path.name,
                format=Rocpd.format,
                size_bytes=database.size_bytes,
                ranks=[tables.rank],
                events=tables.events,
            ),
            ranks=[RankFacts(rank=tables.rank, chips=self._chips, is_rank_known=False)],
            quality=[*lost, *describe_insane(tables.insane)],
        )

    def _read_agents(self) -> None:
        for agent, kind, name, product in self._select(
            "rocpd_info_agent", "id", "type", "name", "product_name"
        ):
            if str(kind).upper() == "GPU":
                device = self._devices[agent] = len(self._devices)
                shown = str(product or name or "")[:200]
                self._chips.append(ChipFacts(device=device, name=shown))

    def _read_kernels(self) -> None:
        names = {
            kernel: str(shown or plain or "")
            for kernel, shown, plain in self._select(
                "rocpd_info_kernel_symbol", "id", "display_name", "kernel_name"
            )
        }
        columns = ("agent_id", "stream_id", "queue_id", "kernel_id", *_NUMBERS)
        for agent, stream, queue, kernel, *rest in self._spans("rocpd_kernel_dispatch", *columns):
            *sizes, start, end, event = rest
            self._tables.kernel(
                (self._devices.get(agent, 0), _whole(stream or queue)),
                (start, end),
                names.get(kernel, ""),
                self._stack(event),
                (sizes[3:], sizes[:3]),
            )

    def _read_copies(self) -> None:
        columns = ("dst_agent_id", "src_agent_id", "stream_id", "queue_id", "name_id", "size")
        for row in self._spans("rocpd_memory_copy", *columns):
            target, source, stream, queue, name, size, start, end, event = row
            ends = (self._devices.get(each) for each in (target, source))
            self._tables.copy(
                (next((each for each in ends if each is not None), 0), _whole(stream or queue)),
                (start, end),
                str(self._strings.get(name, "")),
                self._stack(event),
                size,
            )

    def _spans(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Rows with their start, end and event behind these columns."""
        whole = self._database.find(table)
        if {"start_id", "end_id"} <= self._database.columns(whole):
            for *rest, start, end, event in self._select(
                table, *columns, "start_id", "end_id", "event_id"
            ):
                yield *rest, self._times.get(start), self._times.get(end), event
        else:
            yield from self._select(table, *columns, "start", "end", "event_id")

    def _select(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """These columns of a table, null where it lacks one; nothing if there is no such table."""
        whole = self._database.find(table)
        if not whole:
            return
        there = self._database.columns(whole)
        asked = ", ".join(f'"{each}"' if each in there else "NULL" for each in columns)
        yield from self._database.select(f'SELECT {asked} FROM "{whole}"', whole)

    def _stack(self, event: object) -> int | None:
        found = self._stacks.get(event)
        return found if isinstance(found, int) else None


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
