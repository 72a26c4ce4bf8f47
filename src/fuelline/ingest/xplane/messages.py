"""The messages of xplane.proto that are read, as tables of fields.

Numbers and meanings are those of the published schema, https://github.com/openxla/xla
(xla/tsl/profiler/protobuf/xplane.proto). Maps are repeated messages with a key and a value.
"""

from __future__ import annotations

from fuelline.ingest.protobuf import Kind, Message

SPACE = Message(
    "XSpace",
    (
        (1, "planes", Kind.SPANS),
        (2, "errors", Kind.SPANS),
        (3, "warnings", Kind.SPANS),
        (4, "hostnames", Kind.SPANS),
    ),
)
PLANE = Message(
    "XPlane",
    (
        (2, "name", Kind.SPAN),
        (3, "lines", Kind.SPANS),
        (4, "event_metadata", Kind.SPANS),
        (5, "stat_metadata", Kind.SPANS),
        (6, "stats", Kind.SPANS),
    ),
)
ENTRY = Message("map entry", ((1, "key", Kind.INT), (2, "value", Kind.SPAN)))
LINE = Message(
    "XLine",
    (
        (1, "id", Kind.INT),
        (2, "name", Kind.SPAN),
        (11, "display_name", Kind.SPAN),
        (3, "timestamp_ns", Kind.INT),
        (4, "events", Kind.SPANS),
    ),
)
EVENT = Message(
    "XEvent",
    (
        (1, "metadata_id", Kind.INT),
        (2, "offset_ps", Kind.INT),
        (3, "duration_ps", Kind.INT),
        (4, "stats", Kind.SPANS),
        (5, "num_occurrences", Kind.INT),
    ),
)
STAT = Message(
    "XStat",
    (
        (1, "metadata_id", Kind.INT),
        (2, "double_value", Kind.DOUBLE),
        (3, "uint64_value", Kind.INT),
        (4, "int64_value", Kind.INT),
        (5, "str_value", Kind.SPAN),
        (7, "ref_value", Kind.INT),
    ),
)
EVENT_METADATA = Message("XEventMetadata", ((2, "name", Kind.SPAN), (4, "display_name", Kind.SPAN)))
STAT_METADATA = Message("XStatMetadata", ((2, "name", Kind.SPAN),))
