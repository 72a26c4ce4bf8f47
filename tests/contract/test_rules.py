"""Codes are never reused, and a rule's own file explains it."""

import re
import sys

import pytest

from fuelline.diagnose.engine import HEALTHY_CODE
from fuelline.diagnose.rule import Rule
from fuelline.diagnose.rules import RULE_GROUPS, RULES

FROZEN = {
    "IN101": "slow-reads",
    "IN102": "storage-bandwidth",
    "IN103": "storage-contention",
    "IN104": "page-cache-thrash",
    "IN105": "small-files",
    "IN106": "file-lock",
    "IN107": "slow-writes",
    "PR201": "too-few-workers",
    "PR202": "too-little-cpu",
    "PR203": "slow-function",
    "PR204": "loop-transform",
    "PR205": "worker-lock",
    "PR206": "blocked-workers",
    "PR207": "one-at-a-time",
    "PR208": "memory-bound",
    "HO301": "slow-handoff",
    "HO302": "slow-collate",
    "TR301": "slow-copies",
    "TR311": "degraded-link",
    "CP401": "small-batches",
    "CP402": "throttled-chip",
    "CP403": "sick-card",
    "CP404": "host-sync",
    "PA501": "checkpoint-pause",
    "PA502": "validation-pause",
    "PA503": "loop-pause",
    "PA504": "collection-pause",
    "PA505": "epoch-restart",
    "PA506": "code-in-step",
    "PA507": "compile-pause",
    "SY601": "straggler",
    "SY602": "rank-jitter",
    "SY603": "network-bandwidth",
    "SY604": "network-latency",
    "SY605": "network-jitter",
    "SY621": "slow-worker",
    "SY622": "uneven-stages",
    "SY623": "uneven-microbatches",
    "PR211": "starved-device",
    "PR212": "slow-preparation",
    "CP411": "launch-bound",
    "CP412": "unfilled-chip",
    "CP413": "drained-queue",
    "TR321": "exposed-copies",
    "PA511": "allocator-stalls",
    "PA512": "start-up",
    "PA513": "host-code",
    "SY611": "late-ranks",
    "SY612": "exposed-exchange",
    "SY613": "ranks-take-turns",
}
"""Codes that were given away; a rule may go, its code may not come back with another meaning."""


def test_codes_and_names_are_unique() -> None:
    codes = [rule.code for rule in RULES]
    assert len(set(codes)) == len(codes)
    assert HEALTHY_CODE not in codes
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_codes_keep_their_meaning() -> None:
    assert {rule.code: rule.name for rule in RULES} == FROZEN


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rules_file_explains_the_rule(rule: Rule) -> None:
    module = sys.modules[type(rule).__module__]
    doc = module.__doc__ or ""
    assert doc.startswith(f"{rule.code} {rule.name}: ")
    assert re.search(r"^What: ", doc, re.MULTILINE), "says what it looks at"
    assert len(doc.splitlines()) >= 4


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_has_a_file_of_its_own(rule: Rule) -> None:
    modules = [type(other).__module__ for other in RULES]
    assert modules.count(type(rule).__module__) == 1


def test_a_group_of_rules_speaks_for_one_stage() -> None:
    sisters = {"decode": "transform"}
    for group in RULE_GROUPS:
        assert len({sisters.get(rule.stage, rule.stage) for rule in group}) == 1
