import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.ingest.protobuf import FieldKind, Message, WireError, text
from tests.unit.ingest.foreign.protowriter import delimited, double, number, varint

PAIR = Message(
    "pair",
    (
        (1, "count", FieldKind.INT),
        (2, "share", FieldKind.DOUBLE),
        (3, "name", FieldKind.SPAN),
        (9, "parts", FieldKind.SPANS),
    ),
)


@given(
    count=st.integers(-(1 << 63), (1 << 63) - 1),
    share=st.floats(allow_nan=False),
    name=st.text(),
    parts=st.lists(st.binary(max_size=300), max_size=5),
    unknown=st.binary(max_size=20),
)
def test_what_was_written_is_read_and_unknown_fields_are_skipped(
    count: int, share: float, name: str, parts: list[bytes], unknown: bytes
) -> None:
    data = delimited(700, unknown) + number(1, count) + double(2, share) + delimited(3, name)
    data += number(50, 7) + b"".join(delimited(9, part) for part in parts) + varint(51 << 3 | 5)
    data += b"\0\0\0\0"
    read_count, read_share, span, spans = PAIR.read(data, 0, len(data))
    assert (read_count, read_share) == (count, share)
    assert text(data, span) == name
    assert [data[start:end] for start, end in spans] == parts


def test_absent_fields_are_none_and_absent_lists_empty() -> None:
    assert PAIR.read(b"", 0, 0) == [None, None, None, []]


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused_with_an_offset_inside_them(data: bytes) -> None:
    at = 1000
    try:
        PAIR.read(data, 0, len(data), base=1000)
    except WireError as error:
        at = error.at
    assert 1000 <= at <= 1000 + len(data)


@pytest.mark.parametrize(
    ("data", "at", "word"),
    [
        (b"\x08" + b"\xff" * 11, 1, "longer than ten bytes"),
        (b"\x08\x80", 1, "ends inside a number"),
        (number(1, 5) + b"\x1a\x05ab", 2, "claims 5 bytes, but only 2"),
        (b"\x11\0\0", 0, "needs 8 bytes"),
        (b"\x0b", 0, "wire type 3"),
        (b"\x0a\x00", 0, "wire type 2, not 0"),
    ],
)
def test_damage_is_named_with_its_byte(data: bytes, at: int, word: str) -> None:
    with pytest.raises(WireError, match=word) as caught:
        PAIR.read(data, 0, len(data))
    assert caught.value.at == at
