"""PR201 too-few-workers: samples are prepared by too few processes while cores are free.

What: while the accelerator waits, the fetching threads compute, and there are fewer of them than
cores that the job may use.
Told apart from: too little CPU (PR202), by which remedy would gain more. More workers could fill
the allowed cores; more cores could take away the time in the run queue. The larger gain is the
limit.
Fix: more workers, up to the number of cores.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from fuelline.diagnose.cpu_words import cores_are_short, cpu_evidence, prepare_stage
from fuelline.diagnose.rule import LISTED_SHARE, found, gain_of_workers, risk_of_workers
from fuelline.diagnose.split import split_input
from fuelline.schema.findings import Remedy
from fuelline.schema.forecasts import WhatIf
from fuelline.schema.readings import value_of
from fuelline.schema.units import number, percent

if TYPE_CHECKING:
    from fuelline.schema.facts import Facts
    from fuelline.schema.findings import Finding


class TooFewWorkers:
    """Decode or transform x parallelism."""

    code: Final = "PR201"
    name: Final = "too-few-workers"
    stage: Final = "transform"
    limit: Final = "parallelism"

    def check(self, facts: Facts) -> Finding | None:
        """Fires when preparing dominates the wait and a core is free."""
        split = split_input(facts)
        if split is None or split.prepare < LISTED_SHARE or cores_are_short(facts) is not False:
            return None
        workers = facts.loader.num_workers if facts.loader is not None else None
        stage = prepare_stage(facts)
        return found(
            self,
            facts,
            split.prepare,
            stage=stage,
            sentence=f"{percent(split.prepare)} of the time the accelerator waits for "
            f"{_crew(workers)} to {stage} samples{_room(facts)}.",
            evidence=cpu_evidence(facts),
            remedies=[_more_workers(facts, workers or 0)],
        )


def _crew(workers: int | None) -> str:
    if workers is None:
        return "the loader"
    return (
        "the training process itself"
        if workers == 0
        else f"{workers} worker{'s' if workers > 1 else ''}"
    )


def _room(facts: Facts) -> str:
    allowed = value_of(facts.cores.allowed)
    return f"; it may use {number(allowed)} cores" if allowed is not None else ""


def _more_workers(facts: Facts, workers: int) -> Remedy:
    """Enough to keep pace with the accelerator, as far as cores go.

    A batch costs `fetch_seconds` of one worker and the accelerator takes one every compute time, so
    it needs fetch / compute workers; 15 % on top for the spread of single fetches.
    """
    allowed = value_of(facts.cores.allowed) or 1.0
    fetch, step = value_of(facts.input.fetch_seconds), facts.steps.mean
    compute = value_of(facts.compute.compute_share)
    wanted = max(workers + 1, 2)
    if fetch and step and compute:
        wanted = max(wanted, math.ceil(1.15 * fetch / (step * compute)))
    best = max(workers + 1, min(wanted, math.ceil(allowed)))
    return Remedy(
        setting=f"DataLoader(..., num_workers={best}, persistent_workers=True)",
        why=f"{best} workers prepare batches side by side; {math.floor(allowed)} cores are allowed",
        applicability="unsafe",
        risk=risk_of_workers(facts.loader, best),
        at_most_speedup=gain_of_workers(facts.loader, best),
        cost=_more_processes(best - workers),
        question=WhatIf(workers=best, persistent=True),
    )


def _more_processes(count: int) -> str:
    if count == 1:
        return "one more process with memory of its own"
    return f"{count} more processes with memory of their own"
