"""Runs a case under Fuelline and takes down what it says: recorded, diagnosed, judged."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.zoo.fault import NotPlanted
from bench.zoo.job import Account, JobError, run_job
from bench.zoo.outcome import Outcome, judge
from bench.zoo.pace import core_time

if TYPE_CHECKING:
    from bench.zoo.case import Case

RUNS = Path(__file__).parents[1] / "out" / "runs"
FUELLINE = (sys.executable, "-m", "fuelline")
FELT = 0.1
"""Of the time: what takes less is no verdict (`diagnose/rule.py:VERDICT_SHARE`)."""
STARVING = ("read", "fetch", "decode", "transform", "collate", "handoff", "pause")
"""Stages that the device waits for where the fault is in one of them."""


def run_case(case: Case, load: str, device: str = "") -> Outcome:
    """One outcome; the recording stays in `bench/out/runs` until the case is run again."""
    base: dict[str, Any] = {
        "case": case.name,
        "tool": "fuelline",
        "load": load,
        "truth": list(case.truth),
        "healthy": case.healthy,
    }
    missing = case.missing()
    if missing:
        return Outcome(**base, status="not-planted", words=f"needs {missing}")
    core_time.cache_clear()  # a host's cores do not keep their speed for hours
    try:
        account, diagnosis, diagnose_s = record(case, f"{case.name}.{load}", device)
        see_planted(case, account)
    except NotPlanted as reason:
        return Outcome(**base, status="not-planted", words=f"needs {reason}")
    except JobError as reason:
        return Outcome(**base, status="failed", words=str(reason))
    return Outcome(
        **base, **judge(case, diagnosis), **describe(account), diagnose_s=round(diagnose_s, 2)
    )


def record(case: Case, name: str, device: str = "") -> tuple[Account, dict[str, Any], float]:
    """The job's own account, the diagnosis, and how long that took."""
    run_dir = (RUNS / device if device else RUNS) / name
    shutil.rmtree(run_dir, ignore_errors=True)
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    recorder = (*FUELLINE, "run", "--quiet", "--run-dir", str(run_dir), "--")
    account = run_job(case, faulty=True, measure=False, recorder=recorder, device=device)
    return account, *diagnose(run_dir)


def diagnose(run_dir: Path) -> tuple[dict[str, Any], float]:
    """The diagnosis as JSON, and how long the command took."""
    start_s = time.perf_counter()
    told = subprocess.run(
        [*FUELLINE, "diagnose", str(run_dir), "--json"], capture_output=True, text=True, check=False
    )
    took_s = time.perf_counter() - start_s
    if told.returncode not in (0, 1):
        raise JobError(f"diagnose ended with {told.returncode}: {told.stderr[-1500:]}")
    return json.loads(told.stdout), took_s


def see_planted(case: Case, account: Account) -> None:
    """A fault that the device hardly feels is none: cores twice as fast as usual undo some."""
    starves = not case.ranks and all(stage in STARVING for stage, _ in case.truth)
    if starves and account.busy_frac > 1 - FELT:
        waited = f"{1 - account.busy_frac:.1%}"
        raise NotPlanted(f"a slower machine: the device waits for {waited} of the time only")


def describe(account: Account) -> dict[str, Any]:
    """The job's own account as fields of an outcome."""
    idle = None if account.busy_frac < 0 else round(1 - account.busy_frac, 3)
    return {"device_idle_frac": idle, "steps": account.steps}
