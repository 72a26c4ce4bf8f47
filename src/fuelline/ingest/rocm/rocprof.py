"""The JSON of `rocprofv3 --output-format json`: one process a file, read whole.

    {"rocprofiler-sdk-tool": [{"agents": [...], "kernel_symbols": [...], "strings": {...},
      "buffer_records": {"kernel_dispatch": [...], "memory_copy": [...], "hip_api": [...], ...}}]}

https://rocm.docs.amd.com/projects/rocprofiler-sdk (output file fields of rocprofv3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, field

from fuelline.ingest.importer import Imported
from fuelline.ingest.rocm.rows import RocmTables, find_host_kind
from fuelline.ingest.spans import describe_insane
from fuelline.ingest.unpack import read_blocks, say_byte
from fuelline.schema.errors import InputError
from fuelline.schema.run.trace import ChipFacts, HostKind, RankFacts, SourceFacts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fuelline.ingest.importer import PartWriter

_KEY = b'"rocprofiler-sdk-tool"'
_GPU = 2
"""ROCPROFILER_AGENT_TYPE_GPU; 1 is a processor."""


class Handle(Struct, frozen=True, gc=False):
    """A number in a box."""

    handle: int = -1


class Size(Struct, frozen=True, gc=False):
    """Of a grid or a workgroup."""

    x: int = 0
    y: int = 0
    z: int = 0


class Correlation(Struct, frozen=True, gc=False):
    """What calls and their work share."""

    internal: int | None = None


class Dispatch(Struct, frozen=True, gc=False):
    """What was dispatched where."""

    agent_id: Handle = Handle()
    queue_id: Handle = Handle()
    kernel_id: int = -1
    workgroup_size: Size = Size()
    grid_size: Size = Size()


class Record(Struct, frozen=True, gc=False):
    """One entry of any buffer."""

    start_timestamp: int
    end_timestamp: int
    kind: int | str = -1
    operation: int | str = -1
    thread_id: int = 0
    correlation_id: Correlation = Correlation()
    dispatch_info: Dispatch = Dispatch()
    stream_id: Handle | None = None
    dst_agent_id: Handle = Handle()
    src_agent_id: Handle = Handle()
    bytes: int | None = None
    args: Any = None


class Agent(Struct, frozen=True):
    """A processor or an accelerator."""

    id: Handle = Handle()
    type: int | str = 0
    name: str = ""
    product_name: str = ""
    cu_count: int | None = None


class Symbol(Struct, frozen=True):
    """A kernel's name."""

    kernel_id: int = -1
    formatted_kernel_name: str = ""
    kernel_name: str = ""


class Operations(Struct, frozen=True):
    """Names of what one kind of record may be."""

    kind: str = ""
    operations: list[str] = []


class Strings(Struct, frozen=True):
    """Of all kinds, by their numbers."""

    buffer_records: list[Operations] = []


class Metadata(Struct, frozen=True):
    """Of the process."""

    pid: int | None = None


class Tool(Struct, frozen=True):
    """What was recorded of one process."""

    metadata: Metadata = Metadata()
    agents: list[Agent] = []
    kernel_symbols: list[Symbol] = []
    strings: Strings = Strings()
    buffer_records: dict[str, list[Record]] = {}


class _File(Struct, frozen=True):
    tools: list[Tool] | Tool = field(name="rocprofiler-sdk-tool")


_FILE = msgspec.json.Decoder(_File)
_HOST_BUFFERS = ("hip_api", "hsa_api", "rccl_api", "marker_api", "rocdecode_api", "ompt")


class Rocprof:
    """The importer of rocprofv3's JSON."""

    format = "rocprof"

    def recognises(self, head: bytes) -> bool:
        """An object whose key names the tool."""
        return head.lstrip().startswith(b"{") and _KEY in head[:4096]

    def read(
        self,
        path: Path,
        rank: int,
        writer: PartWriter,
        *,
        partial: bool,
        advance: Callable[[int], None],
    ) -> Imported:
        """See `Importer`; of JSON that is cut short nothing can be read, `partial` or not."""
        del partial
        data = b"".join(read_blocks(path, advance))
        try:
            found = _FILE.decode(data).tools
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(
                f"{path}: not what rocprofv3 writes, or cut short, before "
                f"{say_byte(path, len(data))} ({str(error)[:200]}). Nothing was imported. Copy the "
                "file again, or record it again."
            ) from None
        tools = found if isinstance(found, list) else [found]
        tables = [_read(tool, rank + place, writer) for place, tool in enumerate(tools)]
        if not sum(table.events for table in tables):
            raise InputError(
                f"{path} was read to its end at {say_byte(path, len(data))} and holds no event. "
                "Nothing was imported. Record it again with `rocprofv3 --sys-trace`."
            )
        return Imported(
            source=SourceFacts(
                file=path.name,
                format=Rocprof.format,
                size_bytes=path.stat().st_size,
                ranks=[table.rank for table in tables],
                events=sum(table.events for table in tables),
            ),
            ranks=[
                RankFacts(
                    rank=table.rank, pid=tool.metadata.pid, chips=_chips(tool), is_rank_known=False
                )
                for tool, table in zip(tools, tables, strict=True)
            ],
            quality=describe_insane(sum(table.insane for table in tables)),
        )


def _gpus(tool: Tool) -> dict[int, int]:
    """Handles of accelerators to devices, in the order of the file."""
    gpus = [agent for agent in tool.agents if agent.type in (_GPU, "GPU")]
    return {agent.id.handle: place for place, agent in enumerate(gpus)}


def _chips(tool: Tool) -> list[ChipFacts]:
    devices = _gpus(tool)
    return [
        ChipFacts(
            device=devices[agent.id.handle],
            name=(agent.product_name or agent.name)[:200],
            sm_count=agent.cu_count,
        )
        for agent in tool.agents
        if agent.id.handle in devices
    ]


def _read(tool: Tool, rank: int, writer: PartWriter) -> RocmTables:
    tables, devices = RocmTables(rank, writer), _gpus(tool)
    names = {
        each.kernel_id: each.formatted_kernel_name or each.kernel_name
        for each in tool.kernel_symbols
    }
    for record in tool.buffer_records.get("kernel_dispatch", []):
        info = record.dispatch_info
        grid, group = info.grid_size, info.workgroup_size
        tables.kernel(
            (devices.get(info.agent_id.handle, 0), _stream(record)),
            (record.start_timestamp, record.end_timestamp),
            names.get(info.kernel_id, ""),
            record.correlation_id.internal,
            ((grid.x, grid.y, grid.z), (group.x, group.y, group.z)),
        )
    for record in tool.buffer_records.get("memory_copy", []):
        ends = (record.dst_agent_id.handle, record.src_agent_id.handle)
        tables.copy(
            (next((devices[end] for end in ends if end in devices), 0), _stream(record)),
            (record.start_timestamp, record.end_timestamp),
            _name(tool, record),
            record.correlation_id.internal,
            record.bytes,
        )
    for buffer in _HOST_BUFFERS:
        for record in tool.buffer_records.get(buffer, []):
            name = _message(record) or _name(tool, record)
            kind = HostKind.ANNOTATION if buffer == "marker_api" else find_host_kind(name)
            span = (record.start_timestamp, record.end_timestamp)
            tables.call(record.thread_id, span, name, kind, record.correlation_id.internal)
    tables.finish()
    return tables


def _stream(record: Record) -> int:
    if record.stream_id is not None and record.stream_id.handle > 0:
        return record.stream_id.handle
    return record.dispatch_info.queue_id.handle


def _name(tool: Tool, record: Record) -> str:
    """By the numbers of its kind and operation, or as it is written."""
    if isinstance(record.operation, str):
        return record.operation
    kinds = tool.strings.buffer_records
    known = isinstance(record.kind, int) and 0 <= record.kind < len(kinds)
    operations = kinds[record.kind].operations if known else []  # type: ignore[index]
    is_named = 0 <= record.operation < len(operations)
    return operations[record.operation] if is_named else ""


def _message(record: Record) -> str:
    """Of a marker."""
    args = record.args
    message = args.get("message") if isinstance(args, dict) else None
    return message if isinstance(message, str) else ""
