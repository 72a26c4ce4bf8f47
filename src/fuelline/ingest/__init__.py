"""One file a format; all give a Timeline. Our own recording is one of them, and can be followed."""

from typing import TYPE_CHECKING

from fuelline.schema.lazily import load_lazily

if TYPE_CHECKING:
    from fuelline.ingest.fixes import read_fixes
    from fuelline.ingest.follow import RunTail
    from fuelline.ingest.gather import is_of_damage
    from fuelline.ingest.hosts import Hosts, find_parts
    from fuelline.ingest.imports import find_sources, import_trace
    from fuelline.ingest.last import read_last
    from fuelline.ingest.recording import compact_recording, load_recording, read_recording
    from fuelline.ingest.trace_run import is_trace, load_trace

__all__ = [
    "Hosts",
    "RunTail",
    "compact_recording",
    "find_parts",
    "find_sources",
    "import_trace",
    "is_of_damage",
    "is_trace",
    "load_recording",
    "load_trace",
    "read_fixes",
    "read_last",
    "read_recording",
]

__getattr__ = load_lazily(
    __name__,
    {
        "Hosts": "hosts",
        "RunTail": "follow",
        "compact_recording": "recording",
        "find_parts": "hosts",
        "find_sources": "imports",
        "import_trace": "imports",
        "is_of_damage": "gather",
        "is_trace": "trace_run",
        "load_recording": "recording",
        "load_trace": "trace_run",
        "read_fixes": "fixes",
        "read_last": "last",
        "read_recording": "recording",
    },
)
