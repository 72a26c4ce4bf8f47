"""`fuelline doctor` says whether traces are read at full speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.ingest.kineto import scan

if TYPE_CHECKING:
    import pytest


def test_a_scanner_that_is_left_out_is_said_with_its_price_and_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FUELLINE_NO_SCANNER", "1")
    found = scan.find_capability()
    assert not found.ok
    assert "read in Python" in found.detail
    assert "half the processor time" in found.enables
    assert found.how_to_enable == "unset FUELLINE_NO_SCANNER"


def test_one_that_was_not_built_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUELLINE_NO_SCANNER", raising=False)
    monkeypatch.setattr(scan, "find_compiled", lambda: None)
    found = scan.find_capability()
    assert not found.ok
    assert "not built" in found.detail
    assert "gcc" in found.how_to_enable
