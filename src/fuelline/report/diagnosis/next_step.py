"""The last line of a report: the one command that is worth typing next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from fuelline.schema.readings import Reading
from fuelline.schema.run.recording import PART_PREFIX

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.findings import Diagnosis, Remedy, RunSummary

_HEALTHY_CODE = "CP400"
_LONGEST = 300
"""Characters of a job that is repeated; of a longer one nobody checks what is pasted."""
_AGAIN = "..."
"""In place of a job that is not known or not to be repeated as it is."""


def propose_next(diagnosis: Diagnosis, name: str, python: str | None) -> str:
    """A command; `python` is what `fuelline run` starts scripts with, which need not be typed."""
    run = shlex.quote(name)
    if diagnosis.run.command[:2] == ["fuelline", "import"]:
        return _after_import(diagnosis, run)
    if diagnosis.verdict.code is None:
        return "fuelline doctor"
    if _has_kept(diagnosis) and _is_script(diagnosis.run, python):
        return f"fuelline tune {_repeat(diagnosis.run, python)}"  # to have it without --fix
    return _against(diagnosis, run, python)


def _against(diagnosis: Diagnosis, run: str, python: str | None) -> str:
    """What helps against the cause that was named."""
    if diagnosis.verdict.code == _HEALTHY_CODE:
        return f"fuelline whatif {run} --chip 2x"  # would a faster chip be fed?
    remedies = [
        remedy
        for finding in diagnosis.findings
        if finding.code == diagnosis.verdict.code
        for remedy in finding.remedies
    ]
    tried_by = _find_trier(diagnosis, python)
    if tried_by is not None and _can_fix(diagnosis, remedies):
        return f"fuelline {tried_by} {_repeat(diagnosis.run, python)}"
    if any(isinstance(remedy.gain, Reading) for remedy in remedies):
        return f"fuelline whatif {run}"
    waits_for_loader = diagnosis.verdict.stage not in _BESIDE_THE_LOADER
    if not remedies and waits_for_loader and tried_by and _is_script(diagnosis.run, python):
        return f"fuelline tune {_repeat(diagnosis.run, python)}"  # trials, where models see no gain
    return f"fuelline export {run} --perfetto timeline.json"


def _find_trier(diagnosis: Diagnosis, python: str | None) -> str | None:
    """The command that tries other workers for this job; None if none can, or --fix has."""
    is_refused = diagnosis.tried_by == "tune" and not _is_script(diagnosis.run, python)
    return None if diagnosis.fixes or is_refused else diagnosis.tried_by


def _has_kept(diagnosis: Diagnosis) -> bool:
    return any(fix.outcome == "kept" for loader in diagnosis.fixes for fix in loader.fixes)


def _after_import(diagnosis: Diagnosis, run: str) -> str:
    if diagnosis.trace is not None and diagnosis.trace.ledgers:
        return f"fuelline export {run} --perfetto timeline.json"
    return "fuelline run train.py"  # counters show that a device waits; its job, for what


_BESIDE_THE_LOADER = ("transfer", "compute", "sync", "pause")
"""Stages that training does not wait for its loader in."""


def _can_fix(diagnosis: Diagnosis, remedies: list[Remedy]) -> bool:
    """Whether the recommended setting, or a remedy where there is none, is one that --fix tries."""
    if diagnosis.verdict.stage in _BESIDE_THE_LOADER:
        return False
    if diagnosis.recommended is None:
        return any(map(_is_for_fix, remedies))
    knobs = {setting.knob for setting in diagnosis.recommended.settings}
    return not knobs.isdisjoint(("num_workers", "prefetch_factor"))


def _is_for_fix(remedy: Remedy) -> bool:
    """Whether it is one of the settings that `run --fix` tries: workers and prefetch."""
    asked = remedy.question
    return asked is not None and (asked.workers is not None or asked.prefetch is not None)


def _repeat(run: RunSummary, python: str | None) -> str:
    """The job as it is typed, quoted; what was hidden in it stays so."""
    if not run.command or run.run_id.startswith(PART_PREFIX):  # each host has a command of its own
        return _AGAIN
    words = run.command[1:] if run.command[0] == python and len(run.command) > 1 else run.command
    job = shlex.join(words)
    return job if len(job) <= _LONGEST else _AGAIN


def _is_script(run: RunSummary, python: str | None) -> bool:
    """Whether `tune` takes it: a script or a module, started by us or by its own python."""
    words = run.command[1:] if run.command[:1] == [python] else run.command
    if words[:1] and Path(words[0]).name.startswith("python"):
        words = words[1:]
    return words[:1] == ["-m"] or (words[:1] != [] and words[0].endswith(".py"))
