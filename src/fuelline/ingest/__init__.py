"""One file a format; all give a Timeline. Our own recording is one of them."""

from fuelline.ingest.recording import compact_recording, load_recording, read_recording

__all__ = ["compact_recording", "load_recording", "read_recording"]
