"""The messages of xplane.proto that are read, as tables of fields.

Numbers and meanings are those of the published schema, https://github.com/openxla/xla
(xla/tsl/profiler/protobuf/xplane.proto). Maps are repeated messages with a key and a value.
"""

from __future__ import annotations

from fuelline.ingest.protobuf import FieldKind, Message

SPACE = Message(
    "XSpace",
    (
        (1, "planes", FieldKind.SPANS),
        (2, "errors", FieldKind.SPANS),
        (3, "warnings", FieldKind.SPANS),
        (4, "hostnames", FieldKind.SPANS),
    ),
)
PLANE = Message(
    "XPlane",
    (
        (2, "name", FieldKind.SPAN),
        (3, "lines", FieldKind.SPANS),
        (4, "event_metadata", FieldKind.SPANS),
        (5, "stat_metadata", FieldKind.SPANS),
        (6, "stats", FieldKind.SPANS),
    ),
)
ENTRY = Message("map entry", ((1, "key", FieldKind.INT), (2, "value", FieldKind.SPAN)))
LINE = Message(
    "XLine",
    (
        (1, "id", FieldKind.INT),
        (2, "name", FieldKind.SPAN),
        (11, "display_name", FieldKind.SPAN),
        (3, "timestamp_ns", FieldKind.INT),
        (4, "events", FieldKind.SPANS),
    ),
)
EVENT = Message(
    "XEvent",
    (
        (1, "metadata_id", FieldKind.INT),
        (2, "offset_ps", FieldKind.INT),
        (3, "duration_ps", FieldKind.INT),
        (4, "stats", FieldKind.SPANS),
        (5, "num_occurrences", FieldKind.INT),
    ),
)
STAT = Message(
    "XStat",
    (
        (1, "metadata_id", FieldKind.INT),
        (2, "double_value", FieldKind.DOUBLE),
        (3, "uint64_value", FieldKind.INT),
        (4, "int64_value", FieldKind.INT),
        (5, "str_value", FieldKind.SPAN),
        (7, "ref_value", FieldKind.INT),
    ),
)
EVENT_METADATA = Message(
    "XEventMetadata", ((2, "name", FieldKind.SPAN), (4, "display_name", FieldKind.SPAN))
)
STAT_METADATA = Message("XStatMetadata", ((2, "name", FieldKind.SPAN),))
