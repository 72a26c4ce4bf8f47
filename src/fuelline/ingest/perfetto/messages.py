"""The messages of perfetto_trace.proto that are read, as tables of fields.

Numbers and meanings are those of the published schema, https://github.com/google/perfetto
(protos/perfetto/trace). A file is a repeated TracePacket; texts are written once a sequence of
packets, under a number that later packets use.
"""

from __future__ import annotations

from fuelline.ingest.protobuf import FieldKind, Message

PACKET = Message(
    "TracePacket",
    (
        (8, "timestamp", FieldKind.INT),
        (58, "timestamp_clock_id", FieldKind.INT),
        (10, "sequence", FieldKind.INT),
        (13, "sequence_flags", FieldKind.INT),
        (11, "track_event", FieldKind.SPAN),
        (12, "interned_data", FieldKind.SPAN),
        (60, "track_descriptor", FieldKind.SPAN),
        (59, "defaults", FieldKind.SPAN),
        (6, "clock_snapshot", FieldKind.SPAN),
        (50, "compressed_packets", FieldKind.SPAN),
        (42, "previous_packet_dropped", FieldKind.INT),
    ),
)
EVENT = Message(
    "TrackEvent",
    (
        (9, "type", FieldKind.INT),
        (11, "track_uuid", FieldKind.INT),
        (10, "name_iid", FieldKind.INT),
        (23, "name", FieldKind.SPAN),
        (3, "category_iid", FieldKind.INT),
        (22, "category", FieldKind.SPANS),
        (4, "annotations", FieldKind.SPANS),
        (1, "delta_us", FieldKind.INT),
        (16, "absolute_us", FieldKind.INT),
    ),
)
ANNOTATION = Message(
    "DebugAnnotation",
    (
        (1, "name_iid", FieldKind.INT),
        (10, "name", FieldKind.SPAN),
        (3, "uint", FieldKind.INT),
        (4, "int", FieldKind.INT),
        (6, "string", FieldKind.SPAN),
        (17, "string_iid", FieldKind.INT),
    ),
)
INTERNED = Message(
    "InternedData",
    (
        (1, "categories", FieldKind.SPANS),
        (2, "names", FieldKind.SPANS),
        (3, "annotation_names", FieldKind.SPANS),
        (29, "strings", FieldKind.SPANS),
    ),
)
TEXT = Message("interned text", ((1, "iid", FieldKind.INT), (2, "text", FieldKind.SPAN)))
TRACK = Message(
    "TrackDescriptor",
    (
        (1, "uuid", FieldKind.INT),
        (2, "name", FieldKind.SPAN),
        (10, "static_name", FieldKind.SPAN),
        (3, "process", FieldKind.SPAN),
        (4, "thread", FieldKind.SPAN),
        (5, "parent_uuid", FieldKind.INT),
    ),
)
PROCESS = Message("ProcessDescriptor", ((1, "pid", FieldKind.INT), (6, "name", FieldKind.SPAN)))
THREAD = Message(
    "ThreadDescriptor",
    ((1, "pid", FieldKind.INT), (2, "tid", FieldKind.INT), (5, "name", FieldKind.SPAN)),
)
DEFAULTS = Message(
    "TracePacketDefaults",
    ((58, "timestamp_clock_id", FieldKind.INT), (11, "track_event", FieldKind.SPAN)),
)
EVENT_DEFAULTS = Message("TrackEventDefaults", ((11, "track_uuid", FieldKind.INT),))
SNAPSHOT = Message("ClockSnapshot", ((1, "clocks", FieldKind.SPANS),))
CLOCK = Message(
    "Clock",
    (
        (1, "id", FieldKind.INT),
        (2, "timestamp", FieldKind.INT),
        (3, "is_incremental", FieldKind.INT),
        (4, "unit_multiplier_ns", FieldKind.INT),
    ),
)
