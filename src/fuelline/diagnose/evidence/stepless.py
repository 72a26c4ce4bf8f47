"""What findings are called in a job without steps: nothing trains there, and nothing waits for it.

The rules are those of every source of batches; only their words are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.findings import Finding

_WORDS = (
    ("of training time is spent waiting for data", "of the time goes to preparing data"),
    ("of training time is spent waiting for results", "of the time is spent waiting for results"),
    ("of training time is spent waiting while", "of the time is lost while"),
    ("of training time is spent waiting for", "of the time goes to"),
    ("training time", "the time"),
    ("the training process itself", "the main process alone"),
    ("of fetch time", "of that time"),
    ("stack samples taken while fetching", "stack samples of that"),
    ("fetches in progress", "at work"),
    ("fetch in progress", "at work"),
    ("batches are then made while the model computes", "they then work at the same time"),
    ("ahead of the loop", "at a time"),
    ("prepare batches", "do this"),
    ("make_batch", "work"),
    (" read by the loader", " read"),
)


def speak_of_time(finding: Finding) -> Finding:
    """The same finding, for a job whose unit of work is time."""
    return msgspec.structs.replace(
        finding,
        sentence=_said(finding.sentence),
        evidence=[
            msgspec.structs.replace(each, what=_said(each.what)) for each in finding.evidence
        ],
        remedies=[
            msgspec.structs.replace(
                each, setting=_said(each.setting), why=_said(each.why), question=None
            )
            for each in finding.remedies
            if not each.by_fix
        ],
    )


def _said(text: str) -> str:
    for ours, theirs in _WORDS:
        text = text.replace(ours, theirs)
    return text
