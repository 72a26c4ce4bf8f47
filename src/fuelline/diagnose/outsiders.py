"""Rules of other packages: asked like ours, each by itself, and never believed blindly.

A rule that fails, takes a code of ours or answers with anything but a possible Finding is a
Blindspot; the diagnosis goes on without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.schema.diagnosis.findings import Finding
from fuelline.store.entry_points import load_plugins

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts
    from fuelline.schema.run.recording import Blindspot
    from fuelline.store.entry_points import Plugin


def ask_plugins(facts: Facts, taken: set[str]) -> tuple[list[Finding], list[Blindspot]]:
    """What rules of other packages find, and which of them could not be heard."""
    installed = load_plugins("fuelline.rules")
    findings: list[Finding] = []
    problems = list(installed.problems)
    for plugin in installed.plugins:
        try:
            finding = _ask(plugin, facts, taken)
        except Exception as error:  # noqa: BLE001 - somebody else's code: reported, no crash
            problems.append(plugin.excuse(error))
            continue
        taken = taken | {plugin.made.code}
        findings += [] if finding is None else [finding]
    return findings, problems


def _ask(plugin: Plugin, facts: Facts, taken: set[str]) -> Finding | None:
    code = plugin.made.code
    if code in taken:
        raise ValueError(f"the code {code} is another rule's")
    finding = plugin.made.check(facts)
    if finding is None:
        return None
    if not isinstance(finding, Finding):
        raise TypeError(f"{code} answered with {type(finding).__name__}, which is not a Finding")
    if finding.code != code or not 0 <= finding.lost_share <= 1:
        raise ValueError(f"{code} found {finding.code} with a loss of {finding.lost_share:g}")
    return finding
