"""Evidence, judgements and a remedy that the rules about preparing samples share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuelline.diagnose.evidence.grain_words import is_grain, more_grain_workers
from fuelline.diagnose.evidence.own_source import is_own_source, more_processes, name_found_crew
from fuelline.diagnose.evidence.tf_data import is_pydataset, is_tf_data, more_calls, node_evidence
from fuelline.diagnose.rule import (
    FETCH_SAMPLES,
    count_workers,
    fact,
    gain_of_workers,
    line_fact,
    workers_now,
)
from fuelline.schema.diagnosis.findings import Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.diagnosis.trials import risk_of_workers
from fuelline.schema.readings import value_of
from fuelline.schema.run.recording import FED_BY_UNKNOWN
from fuelline.schema.units import amount, duration, number, percent

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts, HotLine
    from fuelline.schema.diagnosis.findings import Evidence, Stage
    from fuelline.schema.run.recording import LoaderFacts

THROTTLED = 0.2
"""Share of the scheduler's periods in which a quota stopped the job: with fewer it is a burst."""
CORES_FULL = 0.95
"""Use of the allowed cores above which none is free for one more worker."""
DEPRIVED = 0.75
"""Others that use this much of what the job itself gets are taking its cores."""
ONE_FUNCTION = 0.5
_IDLE = 0.25
"""Share of the cores that nobody uses: with this many idle, threads wait only for moments."""
_HARDLY_ONE = 0.1
"""Cores: if the fetches want less than this, there is room for any number of workers."""


def cores_are_short(facts: Facts) -> bool | None:
    """More cores would help more than more workers; None if that could not be seen.

    With more workers the fetches could at best fill the allowed cores: the gain is the allowed
    cores over those that the fetches in progress want (sleeping or blocked ones want none). With a
    core for each of them they would no longer wait in the run queue: the gain is (cpu + blocked +
    queued) / (cpu + blocked). A quota that stops the job settles it, and so do idle cores.
    """
    cpu, queued = value_of(facts.input.cpu_share), value_of(facts.input.core_wait_share)
    fetchers, allowed = value_of(facts.input.fetchers), value_of(facts.cores.allowed)
    used = value_of(facts.cores.used)
    if cpu is None or queued is None or fetchers is None or allowed is None or used is None:
        return None
    throttled = (value_of(facts.cores.throttled_share) or 0.0) >= THROTTLED
    if throttled or _in_earnest(facts, used, fetchers * cpu, allowed) >= CORES_FULL * allowed:
        return True
    if _has_idle_cores(facts):
        return False
    gain_from_workers = allowed / max(_HARDLY_ONE, fetchers * (cpu + queued))
    needed = cpu + (value_of(facts.input.blocked_share) or 0.0)
    gain_from_cores = (needed + queued) / needed if needed > 0 else 1.0
    return gain_from_cores >= gain_from_workers


def _in_earnest(facts: Facts, used: float, fetching: float, allowed: float) -> float:
    """Cores that the job uses, less those of threads that only spin.

    Threads of torch's kernels spin for a while after each, in case another follows. Where the
    trainer makes its batches itself, nothing else is to be done meanwhile: while it waits for them
    it uses what its fetches compute with, and all cores at most while it does not.
    """
    wait = value_of(facts.input.wait_share)
    if facts.loader is None or facts.loader.num_workers != 0 or wait is None:
        return used
    return min(used, wait * fetching + (1 - wait) * allowed)


def _has_idle_cores(facts: Facts) -> bool:
    """A good part of the host is idle, and the job may use all of it."""
    allowed, host = value_of(facts.cores.allowed), value_of(facts.cores.host)
    idle = value_of(facts.cores.idle)
    if allowed is None or host is None or idle is None:
        return False
    return allowed >= host - 0.01 and idle >= _IDLE * allowed


def cores_are_taken(facts: Facts) -> bool:
    """Something other than the job's own demand limits it: a quota, affinity, other processes."""
    allowed, host = value_of(facts.cores.allowed), value_of(facts.cores.host)
    used, others = value_of(facts.cores.used), value_of(facts.cores.others)
    narrow = allowed is not None and host is not None and allowed < host - 0.01
    throttled = (value_of(facts.cores.throttled_share) or 0.0) >= THROTTLED
    crowded = used is not None and others is not None and others >= DEPRIVED * used
    return narrow or throttled or crowded


def one_function(facts: Facts) -> HotLine | None:
    """A line of the user's own Python that most of the fetching is spent in, if there is one."""
    own: dict[str, float] = {}
    for line in facts.fetch_lines:
        if line.own and line.stage == "transform":
            own[line.function] = own.get(line.function, 0.0) + line.share
    if not own:
        return None
    function = max(own, key=lambda name: own[name])
    if own[function] < ONE_FUNCTION:
        return None
    return next(line for line in facts.fetch_lines if line.own and line.function == function)


def prepare_stage(facts: Facts) -> Stage:
    """Decode or transform, by where the stack samples fell."""
    decode = sum(line.share for line in facts.fetch_lines if line.stage == "decode")
    transform = sum(line.share for line in facts.fetch_lines if line.stage == "transform")
    return "decode" if decode > transform else "transform"


def name_preparing(facts: Facts) -> str:
    """Which of the two it is; "prepare" where no stack sample has shown it."""
    return prepare_stage(facts) if facts.fetch_lines else "prepare"


def cpu_evidence(facts: Facts) -> list[Evidence]:
    """What every finding about preparing samples shows."""
    return [
        *line_fact(facts.fetch_lines, FETCH_SAMPLES),
        *fact(lambda v: f"{percent(v)} of fetch time is spent computing", facts.input.cpu_share),
        *fact(
            lambda v: f"{percent(v)} of fetch time is spent waiting for a core",
            facts.input.core_wait_share,
        ),
        *fact(
            lambda v: f"{amount(v, 'fetch', 'fetches')} in progress at a time", facts.input.fetchers
        ),
        *fact(lambda v: f"{duration(v)} to fetch one batch", facts.input.fetch_seconds),
        *fact(lambda v: f"the job uses {v:.1f} cores", facts.cores.used),
        *fact(lambda v: f"it may use {number(v)} cores", facts.cores.allowed),
        *fact(lambda v: f"other processes use {v:.1f} cores", facts.cores.others),
        *node_evidence(facts),
    ]


def more_workers(facts: Facts) -> Remedy:
    """Enough to keep pace with the accelerator, as far as cores go."""
    if is_tf_data(facts.loader):
        return more_calls(facts)
    if is_own_source(facts.loader):
        return more_processes(facts)
    if is_grain(facts.loader):
        return more_grain_workers(facts)
    best, workers = count_workers(facts), workers_now(facts)
    allowed = value_of(facts.cores.allowed) or 1.0
    return Remedy(
        setting=f"DataLoader(..., num_workers={best}, persistent_workers=True)",
        why=f"{best} workers prepare batches in parallel; {_allowed(math.floor(allowed))}",
        applicability="unsafe",
        risk=risk_of_workers(facts.loader, best),
        at_most_speedup=gain_of_workers(facts.loader, best),
        cost=_more_processes(best - workers),
        question=WhatIf(workers=best, persistent=True),
    )


def name_crew(loader: LoaderFacts | None) -> str:
    """Who prepares samples."""
    if loader is not None and loader.framework in FED_BY_UNKNOWN:
        return name_found_crew(loader)
    workers = loader.num_workers if loader is not None else None
    if is_pydataset(loader) and workers:
        return (
            "one worker of the PyDataset" if workers == 1 else f"{workers} workers of the PyDataset"
        )
    if is_tf_data(loader) and workers:
        return "one thread of tf.data" if workers == 1 else f"{workers} threads of tf.data"
    if workers is None:
        return "the loader"
    if workers == 0:
        return "the training process itself"
    return "one loader worker" if workers == 1 else f"{workers} loader workers"


def _allowed(cores: int) -> str:
    return "the job may use 1 core" if cores == 1 else f"the job may use {cores} cores"


def _more_processes(count: int) -> str:
    if count == 1:
        return "one more process with its own memory"
    return f"{count} more processes with their own memory"
