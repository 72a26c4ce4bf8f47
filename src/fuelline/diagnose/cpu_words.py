"""Evidence and judgements that the rules about preparing samples share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuelline.diagnose.rule import fact, line_fact
from fuelline.schema.findings import Evidence, Stage
from fuelline.schema.readings import value_of
from fuelline.schema.units import duration, number, percent

if TYPE_CHECKING:
    from fuelline.schema.facts import Facts, HotLine

CORE_WAIT = 0.25
"""Share of ready time spent waiting for a core above which cores are short: a thread that gets
three quarters of a core is slowed by a third. Tuners use the same figure as their cap."""
THROTTLED = 0.05
CORES_FULL = 0.85
"""Use of the allowed cores above which none is free: averages over a second hide short gaps."""
DEPRIVED = 0.75
"""Others that use this much of what the job itself gets are taking its cores."""
ONE_FUNCTION = 0.5


def core_wait_of_ready(facts: Facts) -> float | None:
    """Of the time that fetching threads were ready to run: without a core."""
    cpu, queued = value_of(facts.input.cpu_share), value_of(facts.input.core_wait_share)
    if cpu is None or queued is None:
        return None
    return queued / (cpu + queued) if cpu + queued > 0 else 0.0


def cores_are_short(facts: Facts) -> bool | None:
    """No core is free for one more worker; None if that could not be seen."""
    queued = core_wait_of_ready(facts)
    used, allowed = value_of(facts.cores.used), value_of(facts.cores.allowed)
    if queued is None or used is None or allowed is None:
        return None
    throttled = value_of(facts.cores.throttled_share) or 0.0
    return queued >= CORE_WAIT or throttled >= THROTTLED or used >= CORES_FULL * allowed


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


def cpu_evidence(facts: Facts) -> list[Evidence]:
    """What every finding about preparing samples shows."""
    return [
        *line_fact(facts.fetch_lines, "the fetchers' stack samples"),
        *fact(lambda v: f"{percent(v)} of fetching is on a core", facts.input.cpu_share),
        *fact(lambda v: f"{percent(v)} of fetching waits for a core", facts.input.core_wait_share),
        *fact(lambda v: f"{number(v)} fetches in progress", facts.input.fetchers),
        *fact(lambda v: f"{duration(v)} for one batch", facts.input.fetch_seconds),
        *fact(lambda v: f"the job uses {v:.1f} cores", facts.cores.used),
        *fact(lambda v: f"it may use {number(v)} cores", facts.cores.allowed),
        *fact(lambda v: f"other processes use {v:.1f} cores", facts.cores.others),
    ]
