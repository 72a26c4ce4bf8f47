"""Nsight Systems: the SQLite export of a report of any version, one rank a process with a device.

Kernels, copies, sets and whole graphs become device events; runtime calls, NVTX ranges, traced
system calls and the profiler's own work become host events. Which tables and columns are read says
`tables`. A process is a rank if it used a device; MPI's number is taken if NVTX has it.

Also here: what is wrong with an Nsight export: nothing traced, graphs as one block, events lost.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fuelline.ingest.importer import Imported
from fuelline.ingest.name_book import NameBook
from fuelline.ingest.nsight.database import MAGIC, Database
from fuelline.ingest.nsight.events import PID_BITS, Events, read_counters
from fuelline.ingest.nsight.tables import (
    CAPTURE_TABLES,
    CHIP_COLUMNS,
    DEVICE_SOURCES,
    HOST_SOURCES,
)
from fuelline.ingest.spans import describe_insane, keep_sane, write
from fuelline.ingest.unpack import refuse_packed
from fuelline.schema.names import clean
from fuelline.schema.run.trace import ChipFacts, Quality, RankFacts, SourceFacts
from fuelline.timeline.tables import MOST_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from fuelline.ingest.importer import PartWriter
    from fuelline.ingest.nsight.tables import Source


_MPI_RANK = re.compile(r"^MPI Rank (\d{1,9})$")
"""The name that the MPI wrapper of NVTX gives the main thread."""


class Nsight:
    """The importer of Nsight Systems' SQLite exports."""

    format = "nsys"

    def recognises(self, head: bytes) -> bool:
        """Any SQLite database but ROCm's; whether Nsight wrote it shows in its tables."""
        return head.startswith(MAGIC) and b"rocpd_" not in head

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
        database = Database(path, partial=partial)
        try:
            return _Report(database, rank, writer).read(advance)
        finally:
            database.close()


class _Report:
    """One file on its way into tables."""

    def __init__(self, database: Database, rank: int, writer: PartWriter) -> None:
        if not any(database.has(table) for table in CAPTURE_TABLES):
            raise database.error(
                f"this is an SQLite database of {database.size_bytes} bytes whose schema, at byte "
                f"0, has no table of what was captured ({', '.join(CAPTURE_TABLES)}), so Nsight "
                "Systems did not export it"
            )
        self._database = database
        self._writer = writer
        self._mpi_rank = self._find_mpi_rank()
        self._ranks = self._find_ranks(rank)

    def read(self, advance: Callable[[int], None]) -> Imported:
        """All tables; facts and quality are what is left to say."""
        database = self._database
        sources = [each for each in (*DEVICE_SOURCES, *HOST_SOURCES) if database.has(each.table)]
        rows = {source.table: database.count(source.table) for source in sources}
        size_bytes = database.size_bytes
        names = NameBook()
        events = Events(database, names)
        insane = 0
        for source in sources:
            insane += self._read_events(source, events)
            advance(size_bytes * rows[source.table] // max(1, sum(rows.values())))
        for frame in read_counters(database):
            for rank in self._ranks.values():
                write(self._writer, "counters", rank, frame)
        for rank in self._ranks.values():
            self._writer.add("names", rank, names.frame())
        return Imported(
            source=SourceFacts(
                file=database.path.name,
                format=Nsight.format,
                size_bytes=size_bytes,
                ranks=sorted(self._ranks.values()),
                events=sum(rows.values()),
            ),
            ranks=[self._describe(owner, rank) for owner, rank in self._ranks.items()],
            quality=find_problems(database, rows, insane),
        )

    def _read_events(self, source: Source, events: Events) -> int:
        """Write one table; how many of its events end before they start."""
        table = "device" if source in DEVICE_SOURCES else "host"
        insane = 0
        for frame in events.frames(source):
            kept, dropped = keep_sane(frame)
            insane += dropped
            for (owner,), rows in kept.partition_by("owner", as_dict=True).items():
                rank = self._ranks.get(owner)
                if rank is not None:
                    write(self._writer, table, rank, rows)
        return insane

    def _find_ranks(self, first: int) -> dict[int | None, int]:
        """Process to rank: those with a device, else those with any call or range.

        Old exports do not say whose a kernel is; then there is one process, None.
        """
        owners = self._find_owners(DEVICE_SOURCES) or self._find_owners(HOST_SOURCES)
        if not owners:
            raise self._database.error(
                "it holds no CUDA activity and no NVTX range up to its end at byte "
                f"{self._database.size_bytes}"
            )
        if len(owners) == 1:
            return {owners[0]: first if self._mpi_rank is None else self._mpi_rank}
        return {owner: first * len(owners) + number for number, owner in enumerate(owners)}

    def _find_owners(self, sources: tuple[Source, ...]) -> list[int | None]:
        """Processes in these tables, by the first device that each used, then by number."""
        first_device: dict[int | None, int] = {}
        for source in sources:
            there = self._database.columns(source.table)
            if not there:
                continue
            owner = f'"{source.owner}" / {1 << PID_BITS}' if source.owner in there else "NULL"
            device = "MIN(deviceId)" if "deviceId" in there else "0"
            query = f'SELECT {owner}, {device} FROM "{source.table}" GROUP BY 1'
            for found, number in self._database.select(query, source.table):
                low = number if isinstance(number, int) else 0
                whose = found if isinstance(found, int) else None
                first_device[whose] = min(low, first_device.get(whose, low))
        return sorted(first_device, key=lambda whose: (first_device[whose], whose or 0))

    def _find_mpi_rank(self) -> int | None:
        if "text" not in self._database.columns("NVTX_EVENTS"):
            return None
        query = "SELECT text FROM NVTX_EVENTS WHERE text LIKE 'MPI Rank %'"
        for (text,) in self._database.select(query, "NVTX_EVENTS"):
            found = _MPI_RANK.match(str(text))
            if found:
                return int(found[1])
        return None

    def _describe(self, owner: int | None, rank: int) -> RankFacts:
        return RankFacts(
            rank=rank,
            host=self._read_setting("TARGET_INFO_SYSTEM_ENV", "Hostname"),
            pid=None if owner is None else owner % (1 << PID_BITS),
            chips=self._read_chips(),
            origin_ns=self._read_start(),
            is_rank_known=self._mpi_rank is not None and len(self._ranks) == 1,
            settings={
                "product": self._read_setting("META_DATA_EXPORT", "EXPORT_PRODUCT_VERSION")
                or self._read_setting("EXPORT_META_DATA", "EXPORT_PRODUCT_VERSION"),
                "cuda_graph_trace": self._read_setting(
                    "META_DATA_CAPTURE", "CUDA_GRAPH_TRACE_OPTIONS:MODE"
                ),
            },
        )

    def _read_start(self) -> int:
        """When the session began, on the wall clock: times are counted from there."""
        table = "TARGET_INFO_SESSION_START_TIME"
        if "utcEpochNs" not in self._database.columns(table):
            return 0
        query = f'SELECT utcEpochNs FROM "{table}" LIMIT 1'
        (began_ns,) = next(iter(self._database.select(query, table)), (0,))
        return began_ns if isinstance(began_ns, int) and 0 < began_ns < MOST_NS else 0

    def _read_setting(self, table: str, name: str) -> str:
        if not {"name", "value"} <= self._database.columns(table):
            return ""
        query = f"SELECT value FROM \"{table}\" WHERE name = '{name}' LIMIT 1"
        return str(next(iter(self._database.select(query, table)), ("",))[0])[:200]

    def _read_chips(self) -> list[ChipFacts]:
        """As TARGET_INFO_GPU says; a report without it (a container, say) knows no chip."""
        there = self._database.columns("TARGET_INFO_GPU")
        if not {"id", "name"} <= there:
            return []
        theirs = {ours: column for ours, column in CHIP_COLUMNS.items() if column in there}
        columns = ", ".join(["id", "name", *theirs.values()])
        query = f"SELECT {columns} FROM TARGET_INFO_GPU"
        return [
            _chip(row[0], row[1], dict(zip(theirs, row[2:], strict=True)))
            for row in self._database.select(query, "TARGET_INFO_GPU")
            if isinstance(row[0], int) and 0 <= row[0] < 1 << 31
        ]


def _chip(device: int, name: object, cells: dict[str, object]) -> ChipFacts:
    numbers = {
        ours: cell for ours, cell in cells.items() if isinstance(cell, int) and 0 < cell < 1 << 62
    }
    warps, width = numbers.pop("max_warps_per_sm", None), numbers.get("warp_size")
    bandwidth = numbers.pop("peak_bytes_per_s", None)
    return ChipFacts(
        device=device,
        name=str(name or "")[:200],
        max_threads_per_sm=warps * width if warps and width else None,
        peak_bytes_per_s=None if bandwidth is None else float(bandwidth),
        **numbers,
    )


_LOST = re.compile(r"\b(dropped|lost|incomplete|overflow\w*)\b", re.IGNORECASE)
_MOST_TEXT = 200


def find_problems(database: Database, rows: Mapping[str, int], insane: int) -> list[Quality]:
    """All that the tables themselves show; `rows` are those of the tables that are there."""
    found = [
        Quality(problem=text, forbids="totals over the whole trace", code="truncated")
        for text in database.problems
    ]
    if not rows.get("CUPTI_ACTIVITY_KIND_KERNEL") and not rows.get(_GRAPHS):
        found.append(
            Quality(
                problem="no CUDA kernel was recorded (nsys profile without --trace=cuda, or the "
                "export was restricted to other tables)",
                forbids="anything about the device; it must not be called idle",
                code="no-device",
            )
        )
    if rows.get(_GRAPHS):
        found.append(
            Quality(
                problem=f"{rows[_GRAPHS]} launches of CUDA graphs were recorded as one block each "
                "(`--cuda-graph-trace=node` records their kernels)",
                forbids="kernel classes, SM fill, and telling computing from communicating inside",
                code="graph-blocks",
            )
        )
    return [*found, *describe_insane(insane), *_read_diagnostics(database)]


_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"


def _read_diagnostics(database: Database) -> list[Quality]:
    """The profiler's own warnings about losses."""
    if "text" not in database.columns("DIAGNOSTIC_EVENT"):
        return []
    texts = database.select(
        "SELECT DISTINCT text FROM DIAGNOSTIC_EVENT LIMIT 1000", "DIAGNOSTIC_EVENT"
    )
    return [
        Quality(
            problem=f"the profiler says: {clean(str(text))[:_MOST_TEXT]}",
            forbids="totals over the whole trace",
            code="dropped",
        )
        for (text,) in texts
        if _LOST.search(str(text))
    ][:5]
