"""Names of any bytes can be shown, written down and read back."""

import os
import re

from hypothesis import given
from hypothesis import strategies as st

from fuelline.record.samplers.mounts import UNKNOWN
from fuelline.record.samplers.places import Places
from fuelline.schema.foreign import decode_json, encode_json
from fuelline.schema.names import clean, encodable
from fuelline.schema.run.journal import decode_frames, encode_frame


@given(st.binary(max_size=40))
def test_a_name_of_any_bytes_can_be_encoded(raw: bytes) -> None:
    encodable(os.fsdecode(raw)).encode("utf-8")
    clean(os.fsdecode(raw)).encode("utf-8")


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_a_name_that_can_be_encoded_stays_as_it_is(name: str) -> None:
    assert encodable(name) == name


def test_a_file_that_is_no_utf8_does_not_cost_the_journal_its_frame() -> None:
    places = Places()
    assert places.add_file("/data/caf\udce9", UNKNOWN) == 1
    assert places.add_file("/data/caf\udce9", UNKNOWN) == 1
    (place,) = decode_frames(encode_frame(places.drain())).rows
    assert place.path == r"/data/caf\udce9"


@given(st.text())
def test_an_answer_can_be_printed_and_says_the_same(name: str) -> None:
    shown = encode_json({"name": encodable(name)})
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\ufeff]", shown)
    assert decode_json(shown, dict[str, str]) == {"name": encodable(name)}
