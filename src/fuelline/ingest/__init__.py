"""One file a format; all give a Timeline. Our own recording is one of them, and can be followed."""

from fuelline.ingest.fixes import read_fixes
from fuelline.ingest.follow import RunTail
from fuelline.ingest.hosts import Hosts, find_parts
from fuelline.ingest.last import read_last
from fuelline.ingest.recording import compact_recording, load_recording, read_recording

__all__ = [
    "Hosts",
    "RunTail",
    "compact_recording",
    "find_parts",
    "load_recording",
    "read_fixes",
    "read_last",
    "read_recording",
]
