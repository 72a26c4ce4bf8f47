"""The zoo's outcomes as Markdown: figures and bars, a row a case, the confusion matrix."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from bench import results
from bench.zoo.outcome import UNEXPLAINED_BAR, Outcome, confusion, summary

if TYPE_CHECKING:
    from collections.abc import Sequence

MARK = {"right": "right", "wrong": "**wrong**", "no-verdict": "**cannot tell**"}


def write_report(outcomes: list[Outcome], device: str = "") -> None:
    """Update the zoo's section of the results page, or that of a device."""
    results.write_section(f"zoo_{device}" if device else "zoo", markdown(outcomes, device))


def markdown(outcomes: list[Outcome], device: str = "") -> str:
    """The whole section."""
    by_tool: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_tool[outcome.tool].append(outcome)
    head = "## Bottleneck zoo" + (" on the emulated device" if device else "")
    command = "python -m bench.zoo" + (f" --device {device}" if device else "")
    parts = [head, f"`{command}`, {results.machine()}."]
    for tool, told in sorted(by_tool.items()):
        parts += [f"### {tool}", figures(told), cases_table(told), "Truth against verdict:"]
        parts.append(confusion_table(told))
    return "\n\n".join(parts)


def figures(outcomes: list[Outcome]) -> str:
    """The figures against their bars."""
    told = summary(outcomes)
    unexplained = told["unexplained_max_frac"]
    rows = [
        ("stage and limit both right", f"{told['right']} of {told['runs']} runs", "all"),
        ("at least the right area: input, compute, pause", f"{told['right_area']}", "all"),
        ("false alarms on healthy controls", f"{told['false_alarms']} of {told['controls']}", "0"),
        ("unexplained share of wall time, worst", _percent(unexplained), _percent(UNEXPLAINED_BAR)),
        ("not planted", str(told["not_planted"]), ""),
        ("job or tool failed", str(told["failed"]), "0"),
    ]
    return _table(("figure", "measured", "bar"), rows)


def cases_table(outcomes: list[Outcome]) -> str:
    """A row a case, all its repetitions in it."""
    by_case: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_case[outcome.case].append(outcome)
    rows = [
        (
            name,
            _truth(runs[0]),
            ", ".join(_told(outcome) for outcome in runs),
            ", ".join(_percent(outcome.device_idle_frac) for outcome in runs),
            ", ".join(_percent(outcome.unexplained_frac) for outcome in runs),
        )
        for name, runs in by_case.items()
    ]
    return _table(("case", "truth", "verdict, by load", "device idle", "unexplained"), rows)


def confusion_table(outcomes: list[Outcome]) -> str:
    """Truths down, verdicts across."""
    counts = confusion(outcomes)
    truths = sorted({truth for truth, _ in counts})
    verdicts = sorted({told for _, told in counts})
    rows = [(truth, *(str(counts[truth, told] or "") for told in verdicts)) for truth in truths]
    return _table(("truth", *verdicts), rows)


def _truth(outcome: Outcome) -> str:
    pairs = " or ".join(f"{stage} x {limit}" for stage, limit in outcome.truth)
    return f"{pairs}; {outcome.culprit}" if outcome.culprit else pairs


def _told(outcome: Outcome) -> str:
    if outcome.status in ("not-planted", "failed"):
        return outcome.status.replace("-", " ")
    if outcome.status == "wrong" and outcome.said in outcome.truth:
        return f"**{outcome.said_culprit or 'nobody is late'}**"
    if outcome.status == "wrong" and outcome.said:
        return f"**{' x '.join(outcome.said)}**"
    return MARK[outcome.status] + (" (false alarm)" if outcome.false_alarm else "")


def _percent(frac: float | None) -> str:
    return "-" if frac is None else f"{frac:.1%}".replace("%", " %")


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
