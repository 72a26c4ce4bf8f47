"""The zoo's bookkeeping: what counts as right, as a false alarm, and as not planted at all."""

from __future__ import annotations

from typing import Any

import pytest
from bench.zoo import job, record
from bench.zoo.case import HEALTHY, Case, Culprit
from bench.zoo.fault import NotPlanted
from bench.zoo.outcome import Outcome, confusion, is_alarm, judge, right_area, summary

READ = ("read", "latency")


def make_case(*truth: tuple[str, str], **fields: Any) -> Case:
    return Case(name="c", sentence="", job="none", args="", truth=truth or (READ,), **fields)


def diagnosis(stage: str | None, limit: str | None, **fields: Any) -> dict[str, Any]:
    code = "XX100" if stage else None
    verdict = {"code": code, "stage": stage, "limit": limit, "sentence": "s", "reason": "r"}
    return {"verdict": verdict, "findings": [], "budget": [], **fields}


def outcome(status: str = "right", **fields: Any) -> Outcome:
    given = {"case": "c", "tool": "t", "load": "none", "truth": [READ], "said": READ, **fields}
    return Outcome(**{"unexplained_frac": 0.0, "status": status, **given})


class Unplantable:
    """A fault that this machine cannot have, noticed before or while it is planted."""

    def __init__(self, *, early: bool) -> None:
        self.early = early

    def missing(self) -> str | None:
        return "a floppy drive" if self.early else None

    def plant(self, data: object) -> Any:
        raise NotPlanted("a floppy drive")


@pytest.mark.parametrize("early", [True, False])
def test_a_case_that_cannot_be_planted_is_reported_so_and_never_passes(
    early: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(record, "RUNS", tmp_path)
    monkeypatch.setattr(job, "LOCK", tmp_path / "lock")

    told = record.run_case(make_case(fault=Unplantable(early=early)), "none")

    assert told.status == "not-planted"
    assert "a floppy drive" in told.words
    assert summary([told])["right"] == 0
    assert not summary([told])["passed"]


def test_one_unplanted_case_among_right_ones_fails_the_zoo() -> None:
    assert summary([outcome()])["passed"]
    assert not summary([outcome(), outcome("not-planted", said=None)])["passed"]


def test_no_outcomes_at_all_do_not_pass() -> None:
    assert not summary([])["passed"]


@pytest.mark.parametrize(
    ("stage", "limit", "status"),
    [
        ("read", "latency", "right"),
        ("read", "bandwidth", "wrong"),
        ("decode", "latency", "wrong"),
        (None, None, "no-verdict"),
    ],
)
def test_stage_and_limit_must_both_be_right(stage: str, limit: str, status: str) -> None:
    assert judge(make_case(), diagnosis(stage, limit))["status"] == status


def test_any_of_two_acceptable_truths_is_right() -> None:
    case = make_case(("collate", "code"), ("handoff", "code"))

    assert judge(case, diagnosis("handoff", "code"))["status"] == "right"
    assert judge(case, diagnosis("handoff", "memory"))["status"] == "wrong"


LATE = {"rank": 1, "stage": "read", "limit": "latency", "part": "input"}


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ([LATE], "right"),
        ([{**LATE, "rank": 0}], "wrong"),
        ([{**LATE, "limit": "bandwidth"}], "wrong"),
        ([{**LATE, "part": "forward"}], "wrong"),
        ([], "wrong"),
    ],
)
def test_a_straggler_is_right_only_with_its_rank_part_stage_and_limit(
    said: list[dict[str, Any]], status: str
) -> None:
    case = make_case(("sync", "imbalance"), culprit=Culprit(**LATE))
    told = judge(case, diagnosis("sync", "imbalance", collectives={"culprits": said}))
    assert told["status"] == status
    assert told["culprit"] == "rank 1, input: read x latency"


def finding(stage: str, limit: str, lost_share: float) -> dict[str, Any]:
    return {"stage": stage, "limit": limit, "lost_share": lost_share}


def test_a_control_told_anything_but_healthy_is_a_false_alarm() -> None:
    assert is_alarm(diagnosis("read", "latency"), READ, (HEALTHY,))
    assert not is_alarm(diagnosis(*HEALTHY), HEALTHY, (HEALTHY,))


def test_a_finding_on_a_control_is_an_alarm_from_a_tenth_of_the_window_on() -> None:
    small = diagnosis(*HEALTHY, findings=[finding(*READ, 0.09)])
    large = diagnosis(*HEALTHY, findings=[finding(*READ, 0.10)])

    assert not is_alarm(small, HEALTHY, (HEALTHY,))
    assert is_alarm(large, HEALTHY, (HEALTHY,))


def test_a_right_verdict_with_a_false_alarm_does_not_pass() -> None:
    assert not summary([outcome(healthy=True, false_alarm=True)])["passed"]


def test_a_budget_with_too_much_unexplained_or_none_at_all_does_not_pass() -> None:
    parts = [{"part": "compute", "share": 0.96}, {"part": "unexplained", "share": 0.04}]

    assert judge(make_case(), diagnosis(*READ, budget=parts))["unexplained_frac"] == 0.04
    assert not summary([outcome(unexplained_frac=0.04)])["passed"]
    assert not summary([outcome(unexplained_frac=None)])["passed"]


def test_the_confusion_matrix_counts_truth_against_verdict_of_runs_that_took_place() -> None:
    runs = [
        outcome(),
        outcome(),
        outcome("wrong", said=("read", "bandwidth")),
        outcome("no-verdict", said=None),
        outcome("not-planted", said=None),
        outcome("failed", said=None),
    ]

    assert confusion(runs) == {
        ("read x latency", "read x latency"): 2,
        ("read x latency", "read x bandwidth"): 1,
        ("read x latency", "cannot tell"): 1,
    }


def test_a_verdict_that_names_no_limit_can_have_the_right_area_but_never_pass() -> None:
    told = outcome("wrong", said=("input", "unnamed"))

    assert right_area(told.truth, told.said)
    assert not right_area([HEALTHY], told.said)
    assert not right_area([READ], None)
    assert summary([told])["right"] == 0
