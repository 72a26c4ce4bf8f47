"""What parts, causes and verdicts are called: the words of every report, a code each."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from fuelline.report.document import Code, Number
from fuelline.schema.readings import Reading

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.findings import Evidence, Finding, Stage, Verdict
    from fuelline.schema.parts import Part

_HEALTHY_TITLE = "healthy"
PART_WORDS = {
    "input": "wait for input",
    "loop": "between steps",
    "own code": "your own code",
    "transfer": "copy to device",
    "sync": "synchronise",
    "undivided communication": "communication",
    "allocation": "device allocation",
}
TIME_WORDS = {"input": "preparing data", "forward": "the model"}
"""In a job without steps."""
WAITING_PARTS: tuple[Part, ...] = (
    "input",
    "epoch start",
    "checkpoint",
    "validation",
    "compile",
    "garbage collection",
    "own code",
    "loop",
    "unexplained",
    "waiting for a peer",
    "data wait",
    "launch-bound",
    "host code",
    "allocation",
    "synchronisation",
    "start-up",
    "profiler overhead",
    "unknown",
)
"""In which training, or a device, waits."""
INPUT_STAGES: tuple[Stage, ...] = ("read", "fetch", "decode", "transform", "collate", "handoff")
"""In which one rank's own loader is at work."""


def label_of(verdict: Verdict, findings: list[Finding]) -> str:
    """`PR201 too few workers (stage: decode, limit: parallelism)`; nothing without a cause."""
    if not verdict.code:
        return ""
    titles = (title_of(found) for found in findings if found.code == verdict.code)
    title = next(titles, f"{verdict.code} {_HEALTHY_TITLE}")
    return f"{title} (stage: {verdict.stage}, limit: {verdict.limit})"


def title_of(finding: Finding) -> str:
    """`PR201 too few workers`, because a code alone explains nothing."""
    return f"{finding.code} {finding.title}"


def state(evidence: Evidence, path: str) -> str:
    """Its sentence, and where in the JSON its number stands."""
    if not isinstance(evidence.signal, Reading):
        return evidence.what
    return Number(evidence.what, evidence.signal.value, f"{path}/signal/value")


_COMMANDS = ("blockdev", "fuelline", "nvidia-smi", "python")


def as_code(setting: str) -> str:
    """Code if it can be pasted as it stands: Python, or a command. Else advice in words."""
    first, _, rest = setting.partition(" ")
    if first in _COMMANDS:
        return setting if ", " in rest or "; " in rest else Code(setting)
    try:
        ast.parse(setting)
    except SyntaxError:
        return setting
    return Code(setting)


TIER_WORDS = {
    "T0": "thread states and counters",
    "T1": "stacks, thread states and counters",
    "T2": "hooks put in while it ran",
}
"""How a job was looked at that was not recorded from its start."""
