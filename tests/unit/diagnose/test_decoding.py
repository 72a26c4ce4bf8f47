"""A quicker decoder: what `fuelline probe` measured is quoted, and nothing is made up."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fuelline.diagnose.evidence.decoding import decode_quicker
from fuelline.schema.diagnosis.ceilings import Ceiling, Probe
from fuelline.schema.diagnosis.facts import Encoding, Facts, HotLine
from fuelline.schema.readings import Missing, Reading
from tests.rules.cases import build_facts

RATES: dict[str, float | None] = {
    "own_pillow_1": 70.0,
    "own_pillow_half_1": 58.0,
    "own_draft_1": 389.0,
}


def probed(rates: dict[str, float | None]) -> Probe:
    return Probe(
        host="here",
        path="/data/jpegs",
        ceilings=[
            Ceiling(
                group="decode",
                name=name,
                what="",
                signal=Missing(reason="not installed")
                if rate is None
                else Reading(value=rate, unit="count/s"),
                mean_difference=1.9,
            )
            for name, rate in rates.items()
        ],
    )


def decoding_job(
    share: float = 0.6,
    source: str = "Image.open(path)",
    probe: Probe | None = None,
    encoding: Encoding = "picture",
) -> Facts:
    line = HotLine(
        line="train.py:7", function="load", source=source, share=share, samples=40, own=False,
        stage="decode", encoding=encoding,
    )  # fmt: skip
    return replace(build_facts({"base": "preparing"}), fetch_lines=[line], probe=probe)


def test_the_figures_of_a_probe_are_quoted_and_predicted_from() -> None:
    (remedy,) = decode_quicker(decoding_job(probe=probed(RATES)))
    assert "draft" in remedy.setting
    assert "389" in remedy.why
    assert "58" in remedy.why
    assert "/data/jpegs" in remedy.why
    assert "1.9" in remedy.risk
    assert remedy.question is not None
    assert remedy.question.transform_factor == pytest.approx(1 / (0.4 + 0.6 * 58 / 389))


def test_the_decoder_that_gains_most_is_the_one_proposed() -> None:
    (remedy,) = decode_quicker(decoding_job(probe=probed({**RATES, "own_simplejpeg_1": 700.0})))
    assert "simplejpeg" in remedy.setting


def test_without_a_probe_or_a_quicker_decoder_in_it_the_command_that_would_tell_is_named() -> None:
    slower = probed({**RATES, "own_draft_1": 50.0, "own_opencv_1": None})
    for probe in (None, slower):
        (remedy,) = decode_quicker(decoding_job(probe=probe))
        assert "fuelline probe" in remedy.why
        assert remedy.question is None


def test_it_stays_silent_where_decoding_costs_little_or_is_quick_already() -> None:
    assert not decode_quicker(decoding_job(share=0.1))
    assert not decode_quicker(decoding_job(source="cv2.imdecode(data, 1)"))


def test_what_is_decoded_decides_what_is_proposed() -> None:
    """A gzipped array is no picture, and of a DICOM file nothing is known that would be quicker."""
    (unpacked,) = decode_quicker(decoding_job(source="gzip.open(path)", encoding="compressed"))
    assert "uncompressed" in unpacked.setting
    assert "JPEG" not in unpacked.setting + unpacked.why
    (parsed,) = decode_quicker(decoding_job(source="json.loads(line)", encoding="json"))
    assert "binary" in parsed.setting
    assert not decode_quicker(decoding_job(source="pydicom.dcmread(path)", encoding="other"))
