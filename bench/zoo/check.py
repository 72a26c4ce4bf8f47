"""Is each fault really there? Runs every job with and without its fault, unrecorded, and compares.

A fault counts as planted when the device then waits for a third of the time at least, or more; the
same job without it must be clearly faster. A control's device must hardly wait at all; with several
ranks an exchange is never free. The idle time is the first rank's, which may be the slow one: then
a lower rate shows the fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.zoo.fault import NotPlanted
from bench.zoo.job import Account, JobError, run_job
from bench.zoo.pace import core_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.zoo.case import Case

IDLE_WHEN_FAULTY = 0.30
IDLE_WHEN_HEALTHY = 0.03
IDLE_OF_HEALTHY_RANKS = 0.10
SLOWER = 0.8
"""Of the rate without the fault."""


def check(cases: Iterable[Case], device: str = "") -> bool:
    """Print a line a case; True if all of them are as they should be."""
    print(f"{'case':32} {'samples/s':>17} {'device idle':>15} {'in next()':>15} {'steps':>6}")
    checked = [_check_one(case, device) for case in cases]
    return all(checked)


def _check_one(case: Case, device: str) -> bool:
    missing = case.missing()
    if missing:
        print(f"{case.name:32} not planted: needs {missing}")
        return False
    core_time.cache_clear()
    try:
        planted = run_job(case, faulty=True, measure=True, device=device)
    except (NotPlanted, JobError) as reason:
        print(f"{case.name:32} not planted: {reason}")
        return False
    alone = planted if case.healthy else run_job(case, faulty=False, measure=True, device=device)
    good = _as_it_should_be(case, planted, alone)
    print(f"{case.name:32} {_row(alone, planted)} {'' if good else '  <- weak'}", flush=True)
    return good


def _as_it_should_be(case: Case, account: Account, alone: Account) -> bool:
    idle_frac = 1 - account.busy_frac
    if case.ranks and not case.healthy:
        return account.samples_per_s < SLOWER * alone.samples_per_s and account.steps >= 30
    if case.ranks:
        return idle_frac < IDLE_OF_HEALTHY_RANKS
    if account.busy_frac < 0 or case.truth == (("compute", "launch"),):
        return account.steps >= 60
    if case.healthy:
        return idle_frac < IDLE_WHEN_HEALTHY
    return idle_frac >= IDLE_WHEN_FAULTY and account.steps >= 60


def _row(alone: Account, planted: Account) -> str:
    pairs = (
        f"{alone.samples_per_s:8.1f}>{planted.samples_per_s:8.1f}",
        f"{1 - alone.busy_frac:7.0%}>{1 - planted.busy_frac:7.1%}",
        f"{alone.wait_frac or 0:7.0%}>{planted.wait_frac or 0:7.0%}",
    )
    return " ".join(pairs) + f" {planted.steps:6}"
