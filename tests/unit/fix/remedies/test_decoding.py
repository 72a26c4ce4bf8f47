"""Another decoder, where decoding is what the training waits for."""

from __future__ import annotations

from fuelline.fix.remedies import decoding
from fuelline.schema.diagnosis.facts import Facts, HotLine, InputFacts
from tests.unit.fix.remedies.situations import facts, reading


def decoding_job(
    share: float = 0.6, waits: float = 0.4, source: str = "Image.open(path).convert('RGB')"
) -> Facts:
    line = HotLine(
        line="train.py:7", function="load", source=source, share=share, samples=40, own=False,
        stage="decode",
    )  # fmt: skip
    return facts(input=InputFacts(exposed_share=reading(waits)), fetch_lines=[line])


def test_decoding_that_is_waited_for_gets_other_decoders_as_unsafe() -> None:
    remedy = decoding.propose(decoding_job())
    assert remedy is not None
    assert remedy.applicability == "unsafe"
    assert "60 %" in remedy.why
    assert "fuelline probe" in remedy.why


def test_it_stays_silent_where_decoding_costs_nothing_or_is_fast_already() -> None:
    assert decoding.propose(decoding_job(share=0.1)) is None
    assert decoding.propose(decoding_job(waits=0.01)) is None
    assert decoding.propose(decoding_job(source="cv2.imdecode(data, 1)")) is None
    assert decoding.propose(facts()) is None
