"""A check as JUnit XML: passed, failed, or skipped because it cannot be told."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from fuelline.report.document import Document, Statement
from fuelline.report.renderers.junit import render_junit
from tests.unit.report.pages import HOSTILE


@pytest.mark.parametrize("outcome", ["passed", "failure", "skipped"])
def test_one_case_with_its_outcome_and_the_report(outcome: str) -> None:
    document = Document((Statement("steps are 12 % longer"),))
    suite = ElementTree.fromstring(render_junit(document, "pace", outcome, "too slow"))[0]
    case = suite.find("testcase")
    assert suite.get("tests") == "1"
    assert suite.get("failures") == str(int(outcome == "failure"))
    assert suite.get("skipped") == str(int(outcome == "skipped"))
    assert case.get("name") == "pace"
    told = case.find(outcome)
    assert (told is None) == (outcome == "passed")
    assert told is None or told.get("message") == "too slow"
    assert "12 % longer" in case.findtext("system-out")


def test_names_stay_text_whatever_they_hold() -> None:
    words = f"{HOSTILE}\ud800\ufffe]]>\x00"
    case = ElementTree.fromstring(
        render_junit(Document((Statement(words),)), words, "failure", words)
    ).find(".//testcase")
    assert case.get("name").startswith("</script>")
    assert [each.tag for each in case] == ["failure", "system-out"]
