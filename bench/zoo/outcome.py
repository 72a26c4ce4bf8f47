"""What came of a case, and what many outcomes say together. Pure: no process is started here.

Invariant: only an outcome with status `right` counts as passed. A case that could not be planted,
whose job failed, or that got no verdict is never counted as passed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from bench.zoo.case import Culprit

if TYPE_CHECKING:
    from bench.zoo.case import Case, Pair

Status = Literal["right", "wrong", "no-verdict", "not-planted", "failed"]

ALARM_LOST_FRAC = 0.10
"""A finding on a healthy job is a false alarm if it claims at least this share of the window."""
UNEXPLAINED_BAR = 0.03
INPUT_STAGES = {"input", "read", "decode", "transform", "collate", "handoff"}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one case under one tool."""

    case: str
    tool: str
    load: str
    status: Status
    truth: list[tuple[str, str]]
    healthy: bool = False
    said: tuple[str, str] | None = None
    """(stage, limit) of the verdict."""
    code: str | None = None
    words: str = ""
    """What the tool said, or why there is no verdict."""
    false_alarm: bool = False
    unexplained_frac: float | None = None
    diagnose_s: float | None = None
    device_idle_frac: float | None = None
    """The truth of the emulated device in this very run; None where there is none."""
    steps: int = 0
    culprit: str = ""
    """The late rank and why, if the case has one."""
    said_culprit: str = ""


def judge(case: Case, diagnosis: dict[str, Any]) -> dict[str, Any]:
    """The part of an outcome that follows from a diagnosis (`fuelline diagnose --json`)."""
    verdict = diagnosis["verdict"]
    said = (verdict["stage"], verdict["limit"]) if verdict["code"] else None
    culprit = said_culprit(diagnosis)
    return {
        "said": said,
        "code": verdict["code"],
        "words": verdict["sentence"] if said else verdict.get("reason") or "",
        "status": judge_culprit(case, culprit, judge_pair(case.truth, said)),
        "culprit": str(case.culprit or ""),
        "said_culprit": str(culprit or ""),
        "false_alarm": case.healthy and is_alarm(diagnosis, said, case.truth),
        "unexplained_frac": unexplained(diagnosis["budget"]),
    }


def judge_pair(truth: tuple[Pair, ...], said: Pair | None) -> Status:
    """Right only if both coordinates are."""
    if said is None:
        return "no-verdict"
    return "right" if said in truth else "wrong"


def said_culprit(diagnosis: dict[str, Any]) -> Culprit | None:
    """The first of the late ranks that a diagnosis names."""
    named = diagnosis.get("collectives", {}).get("culprits", [])
    if not named:
        return None
    fields = ("rank", "stage", "limit", "part")
    return Culprit(**{name: named[0][name] for name in fields})


def judge_culprit(case: Case, said: Culprit | None, status: Status) -> Status:
    """A straggler is named right only with its rank, part, stage and limit."""
    if status == "right" and case.culprit is not None and said != case.culprit:
        return "wrong"
    return status


def right_area(truth: list[Pair], said: Pair | None) -> bool:
    """Whether a verdict at least looks in the right place: input, compute or pauses."""
    return said is not None and any(_area(said[0]) == _area(stage) for stage, _ in truth)


def is_alarm(diagnosis: dict[str, Any], said: Pair | None, truth: tuple[Pair, ...]) -> bool:
    """Whether a healthy job was told that something is wrong with it."""
    if said is not None and said not in truth:
        return True
    return any(
        (finding["stage"], finding["limit"]) not in truth
        and finding["lost_share"] >= ALARM_LOST_FRAC
        for finding in diagnosis["findings"]
    )


def unexplained(budget: list[dict[str, Any]]) -> float | None:
    """Share of the window that the budget does not explain; None without a budget."""
    if not budget:
        return None
    return float(sum(part["share"] for part in budget if part["part"] == "unexplained"))


def confusion(outcomes: list[Outcome]) -> Counter[tuple[str, str]]:
    """How often each truth was told as what; cases that never ran are not in it."""
    return Counter(
        (" / ".join(_word(pair) for pair in outcome.truth), _told(outcome))
        for outcome in outcomes
        if outcome.status not in ("not-planted", "failed")
    )


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """The figures of the zoo: each over all outcomes that it can be said of."""
    ran = [o for o in outcomes if o.status not in ("not-planted", "failed")]
    controls = [o for o in ran if o.healthy]
    unexplained_fracs = [o.unexplained_frac for o in ran if o.unexplained_frac is not None]
    return {
        "cases": len({o.case for o in outcomes}),
        "runs": len(outcomes),
        "right": sum(o.status == "right" for o in outcomes),
        "right_area": sum(right_area(o.truth, o.said) for o in outcomes),
        "not_planted": sum(o.status == "not-planted" for o in outcomes),
        "failed": sum(o.status == "failed" for o in outcomes),
        "controls": len(controls),
        "false_alarms": sum(o.false_alarm for o in controls),
        "unexplained_max_frac": max(unexplained_fracs, default=None),
        "diagnose_max_s": max((o.diagnose_s or 0.0 for o in ran), default=None),
        "passed": bool(outcomes) and all(_passes(o) for o in outcomes),
    }


def _passes(outcome: Outcome) -> bool:
    explained = outcome.unexplained_frac is not None and (
        outcome.unexplained_frac <= UNEXPLAINED_BAR
    )
    return outcome.status == "right" and not outcome.false_alarm and explained


def _area(stage: str) -> str:
    return "input" if stage in INPUT_STAGES else stage


def _told(outcome: Outcome) -> str:
    return _word(outcome.said) if outcome.said else "cannot tell"


def _word(pair: tuple[str, str]) -> str:
    return f"{pair[0]} x {pair[1]}"
