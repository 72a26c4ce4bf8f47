"""One folder a format: our own recording gives a Timeline, the foreign ones a Trace."""

from typing import TYPE_CHECKING

from fuelline.schema.lazily import load_lazily

if TYPE_CHECKING:
    from fuelline.ingest.imports import find_sources, import_trace
    from fuelline.ingest.recording.folder import (
        compact_recording,
        load_recording,
        read_fixes,
        read_recording,
    )
    from fuelline.ingest.recording.follow import RunTail
    from fuelline.ingest.recording.hosts import Hosts, find_parts
    from fuelline.ingest.recording.last import read_last
    from fuelline.ingest.recording.served import read_served
    from fuelline.ingest.trace_run import is_trace, load_trace

__all__ = [
    "Hosts",
    "RunTail",
    "compact_recording",
    "find_parts",
    "find_sources",
    "import_trace",
    "is_trace",
    "load_recording",
    "load_trace",
    "read_fixes",
    "read_last",
    "read_recording",
    "read_served",
]

__getattr__ = load_lazily(
    __name__,
    {
        "Hosts": "recording.hosts",
        "RunTail": "recording.follow",
        "compact_recording": "recording.folder",
        "find_parts": "recording.hosts",
        "find_sources": "imports",
        "import_trace": "imports",
        "is_trace": "trace_run",
        "load_recording": "recording.folder",
        "load_trace": "trace_run",
        "read_fixes": "recording.folder",
        "read_served": "recording.served",
        "read_last": "recording.last",
        "read_recording": "recording.folder",
    },
)
