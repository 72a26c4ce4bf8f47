"""The journal's codec: prefixes survive, damage stays local, losses are counted."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.schema.run import journal
from fuelline.schema.run.samples import Blind, HostSample, Limits, Place, Row, ThreadState

TEXT = st.text(max_size=20)
NUMBER = st.integers(min_value=-1, max_value=2**62)
ROW: st.SearchStrategy[Row] = st.one_of(
    st.builds(Blind, TEXT, TEXT, TEXT),
    st.builds(Place, NUMBER, TEXT, TEXT, TEXT, TEXT),
    st.builds(ThreadState, NUMBER, NUMBER, NUMBER, NUMBER, TEXT, TEXT, NUMBER, NUMBER),
    st.builds(HostSample, NUMBER, st.dictionaries(TEXT, st.floats(allow_nan=False), max_size=3)),
    st.builds(Limits, NUMBER, NUMBER, NUMBER, st.none() | st.floats(0, 99), st.none(), st.just({})),
)
FRAMES = st.lists(st.lists(ROW, max_size=4), max_size=5)


def flatten(frames: list[list[Row]]) -> list[Row]:
    return [row for rows in frames for row in rows]


@given(FRAMES)
def test_a_journal_gives_back_the_rows_it_was_given(frames: list[list[Row]]) -> None:
    decoded = journal.decode_frames(b"".join(map(journal.encode_frame, frames)))
    assert decoded == journal.Decoded(rows=flatten(frames), damaged=0, torn_bytes=0)


@given(FRAMES, st.data())
def test_a_journal_cut_at_any_byte_gives_the_whole_frames_before_the_cut(
    frames: list[list[Row]], data: st.DataObject
) -> None:
    encoded = [journal.encode_frame(rows) for rows in frames]
    whole = b"".join(encoded)
    cut = data.draw(st.integers(0, len(whole)))
    kept = next(n for n in range(len(frames), -1, -1) if len(b"".join(encoded[:n])) <= cut)
    decoded = journal.decode_frames(whole[:cut])
    assert decoded.rows == flatten(frames[:kept])
    assert decoded.damaged == 0
    assert decoded.torn_bytes == cut - len(b"".join(encoded[:kept]))


@given(FRAMES.filter(bool), st.data())
def test_one_flipped_bit_costs_only_the_frame_it_is_in_and_is_noticed(
    frames: list[list[Row]], data: st.DataObject
) -> None:
    encoded = [journal.encode_frame(rows) for rows in frames]
    hit = data.draw(st.integers(0, len(frames) - 1))
    bit = data.draw(st.integers(0, len(encoded[hit]) * 8 - 1))
    broken = bytearray(encoded[hit])
    broken[bit // 8] ^= 1 << bit % 8
    encoded[hit] = bytes(broken)
    decoded = journal.decode_frames(b"".join(encoded))
    assert decoded.rows == flatten(frames[:hit] + frames[hit + 1 :])
    assert decoded.damaged == 1 or decoded.torn_bytes > 0


@given(st.binary(max_size=300))
def test_arbitrary_bytes_never_crash_the_decoder(noise: bytes) -> None:
    decoded = journal.decode_frames(noise)
    assert decoded.damaged + decoded.torn_bytes > 0 or not noise


def test_a_tail_of_zeros_as_a_crashed_filesystem_leaves_counts_as_damage() -> None:
    decoded = journal.decode_frames(journal.encode_frame([Blind("a", "b", "c")]) + bytes(4096))
    assert decoded.rows == [Blind("a", "b", "c")]
    assert decoded.damaged == 1


@pytest.mark.parametrize("payload", [b"\x91\x92\xa6future\x01", b"\x90\x90", b"\x91\xc0"])
def test_a_sound_frame_with_unknown_rows_is_counted_and_skipped(payload: bytes) -> None:
    foreign = journal.HEADER.pack(len(payload), zlib.crc32(payload)) + payload
    decoded = journal.decode_frames(foreign + journal.encode_frame([Blind("a", "b", "c")]))
    assert decoded.rows == [Blind("a", "b", "c")]
    assert decoded.damaged == 1
