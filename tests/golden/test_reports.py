"""What people read is reviewed as a diff: `python -m tests.golden.freeze` writes it anew."""

import pytest

from tests.golden.freeze import REPORTS, draw, make_diagnoses


@pytest.mark.parametrize("name", ["starved", "healthy", "cannot_tell"])
def test_the_report_is_the_one_that_was_reviewed(name: str) -> None:
    assert draw(make_diagnoses()[name]) == (REPORTS / f"{name}.txt").read_text(encoding="utf-8")
