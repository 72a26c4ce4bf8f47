"""Every rule fires on its case, stays silent on others, at its threshold, and when it is blind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fuelline.diagnose import diagnose
from fuelline.diagnose.rules import RULES
from fuelline.schema.diagnosis.facts import Facts
from fuelline.schema.diagnosis.findings import BudgetPart, StepStats, Window
from tests.rules.cases import HERE, KINDS, RUN, build_facts, load_cases


@pytest.mark.parametrize(("rule", "kind", "case"), load_cases())
def test_case(rule: Any, kind: str, case: dict[str, Any]) -> None:
    facts = build_facts(case)
    finding = rule.check(facts)
    expected = case.get("finding")
    assert (expected is not None) == (kind == "fires"), "only `fires` states a finding"
    if expected is None:
        assert finding is None, finding.sentence
    else:
        assert finding is not None
        assert (finding.code, finding.name) == (rule.code, rule.name)
        assert (finding.stage, finding.limit) == (expected["stage"], expected["limit"])
        assert finding.lost_share == pytest.approx(expected["lost_share"])
        assert finding.lost_seconds == pytest.approx(expected["lost_share"] * facts.window.seconds)
        for word in expected["words"]:
            assert word in finding.sentence
        for word in expected.get("remedy_words", []):
            assert word in finding.remedies[0].setting
        assert finding.confidence == expected.get("confidence", "high")
        assert finding.evidence
        assert finding.remedies
    verdict = diagnose(facts, RUN, []).verdict
    assert verdict.code == case["verdict"], verdict.sentence


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_has_all_four_case_files(rule: Any) -> None:
    missing = [kind for kind in KINDS if not (HERE / rule.code / f"{kind}.json").exists()]
    assert not missing, f"{rule.code} lacks {missing}"
    for kind in KINDS:
        assert json.loads((HERE / rule.code / f"{kind}.json").read_text()), f"{kind} is empty"


def test_every_folder_of_cases_belongs_to_a_rule() -> None:
    folders = {path.name for path in HERE.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert folders == {rule.code for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_that_knows_nothing_says_nothing(rule: Any) -> None:
    facts = Facts(
        window=Window(seconds=60, before_seconds=0, after_seconds=0),
        steps=StepStats(count=100),
        budget=[BudgetPart(part="unexplained", seconds=60, share=1.0)],
    )
    assert rule.check(facts) is None
