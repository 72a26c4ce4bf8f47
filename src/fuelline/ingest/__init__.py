"""One file a format; all give a Timeline. Our own recording is one of them."""

from fuelline.ingest.hosts import find_parts, read_hosts
from fuelline.ingest.recording import compact_recording, load_recording, read_recording

__all__ = ["compact_recording", "find_parts", "load_recording", "read_hosts", "read_recording"]
