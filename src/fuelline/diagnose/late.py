"""Why a late rank is late: its own stage and limit, from its own recording.

What a rank spends longer in than the others says where to look; for input the rules that judge any
job are asked about this rank alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.findings import LateRank
from fuelline.schema.readings import at_least, value_of
from fuelline.schema.units import duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.schema.diagnosis.facts import Culprit, Facts
    from fuelline.schema.diagnosis.findings import Finding, Limit, Stage

_INPUT_PARTS = ("input", "epoch start")
_INPUT_STAGES = ("read", "decode", "transform", "collate", "handoff")
_COMPUTE_PARTS = ("forward", "backward", "optimizer", "transfer", "sync")
_QUEUED = 0.5
"""A rank lacks cores if waiting for one makes up at least half of what it is late by."""


def explain(culprit: Culprit, judge: Callable[[Facts], list[Finding]]) -> LateRank:
    """The culprit with its own cause; `judge` gives the findings for one rank's facts."""
    stage, limit, why = _cause(culprit, judge)
    longer = duration(culprit.excess_seconds / max(1, culprit.late_count))
    words = f"its {_WORDS.get(culprit.part, culprit.part)} takes {longer} longer each time"
    return LateRank(
        rank=culprit.rank,
        late_count=culprit.late_count,
        of=culprit.of,
        caused_wait_seconds=culprit.caused_wait_seconds,
        because=f"{words}: {why}" if why else words,
        stage=stage,
        limit=limit,
        part=culprit.part,
    )


_WORDS = {"input": "wait for input", "loop": "own code between steps", "sync": "synchronisation"}


def _cause(
    culprit: Culprit, judge: Callable[[Facts], list[Finding]]
) -> tuple[Stage | None, Limit | None, str]:
    own = culprit.own
    if own is None:
        return None, None, ""
    if culprit.part in _INPUT_PARTS:
        found = next((each for each in judge(own) if each.stage in _INPUT_STAGES), None)
        return (found.stage, found.limit, found.sentence) if found else (None, None, "")
    if culprit.part in _COMPUTE_PARTS:
        if _lacks_cores(culprit, own):
            return "compute", "cores", "it is ready to run but gets no core"
        return "compute", "code", ""
    return "pause", "code", ""


def _lacks_cores(culprit: Culprit, own: Facts) -> bool:
    queued_s = (value_of(own.compute.core_wait_share) or 0.0) * own.window.seconds
    if queued_s >= _QUEUED * culprit.excess_seconds:
        return True
    return at_least(own.cores.throttled_share, _QUEUED)
