"""Probes are kept for later diagnoses of the same host."""

from pathlib import Path

import pytest

from fuelline.schema.diagnosis.ceilings import Probe
from fuelline.store.probes import find_probe, keep_probe


def test_a_probe_is_found_for_what_lies_below_its_folder_on_the_same_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FUELLINE_HOME", str(tmp_path / "home"))
    assert find_probe("here", "/data/a.jpg") is None
    keep_probe(Probe(host="here", path="/data", mount="/"))
    keep_probe(Probe(host="here", path="/data", mount="/data"))
    found = find_probe("here", "/data/train/a.jpg")
    assert found is not None
    assert found.mount == "/data", "the newer one"
    assert find_probe("here", None) is not None
    assert find_probe("here", "/database/a.jpg") is None
    assert find_probe("there", "/data/a.jpg") is None


def test_what_cannot_be_read_or_others_can_write_is_no_probe(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FUELLINE_HOME", str(tmp_path))
    keep_probe(Probe(host="here", path="/data"))
    (kept,) = (tmp_path / "probes").iterdir()
    kept.chmod(0o666)
    (tmp_path / "probes" / "broken.json").write_text("{")
    assert find_probe("here", "/data/a.jpg") is None
