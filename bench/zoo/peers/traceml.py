"""traceml-ai on the zoo: an environment of its own, its two lines in the loop, its verdict as told.

It says what a step's time went to, not what limits it. So INPUT-BOUND becomes stage `input` with an
unnamed limit: its stage can be right, both coordinates cannot. COMPUTE-BOUND and BALANCED are taken
as healthy; RESIDUAL-HEAVY, time that is neither input nor compute, as a pause.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from bench.zoo.case import HEALTHY
from bench.zoo.fault import NotPlanted
from bench.zoo.faults.processes import REPOSITORY
from bench.zoo.job import JobError, run_job
from bench.zoo.outcome import Outcome, judge_pair
from bench.zoo.record import RUNS, describe

if TYPE_CHECKING:
    from pathlib import Path

    from bench.zoo.case import Case, Pair

VERSION = "0.5.0"
VENV = REPOSITORY / "bench" / "out" / "venv-traceml"
SAID: dict[str, Pair] = {
    "INPUT_BOUND": ("input", "unnamed"),
    "H2D_BOUND": ("transfer", "unnamed"),
    "COMPUTE_BOUND": HEALTHY,
    "BALANCED": HEALTHY,
    "RESIDUAL_HEAVY": ("pause", "code"),
}
"""Kinds that are not here (NO_DATA, WARMUP, INCOMPLETE_DATA) are no verdict."""


def run_case(case: Case, load: str) -> Outcome:
    """One outcome. Its launcher runs inside the job's control groups: it starts the job itself."""
    base = {
        "case": case.name,
        "tool": "traceml",
        "load": load,
        "truth": list(case.truth),
        "healthy": case.healthy,
    }
    missing = case.missing()
    if missing:
        return Outcome(**base, status="not-planted", words=f"needs {missing}")
    logs = RUNS / "traceml"
    shutil.rmtree(logs / case.name, ignore_errors=True)
    try:
        account = run_job(
            case,
            faulty=True,
            measure=False,
            launcher=(str(_installed() / "traceml"), "run"),
            between=("--logs-dir", str(logs), "--run-name", case.name, "--args"),
            env={"ZOO_TRACER": "traceml"},
        )
        told = json.loads((logs / case.name / "final_summary.json").read_text())
    except NotPlanted as reason:
        return Outcome(**base, status="not-planted", words=f"needs {reason}")
    except (JobError, OSError) as reason:
        return Outcome(**base, status="failed", words=str(reason))
    return Outcome(**base, **describe(account), **_judge(case, told["primary_diagnosis"]))


def _judge(case: Case, primary: dict[str, Any]) -> dict[str, Any]:
    said = SAID.get(primary["kind"])
    return {
        "said": said,
        "code": primary["kind"],
        "words": f"{primary['status']}: {primary['summary']} {primary['action']}",
        "status": judge_pair(case.truth, said),
        "false_alarm": case.healthy and said not in (HEALTHY, None),
    }


def _installed() -> Path:
    """The `bin` of its environment, made on first use with the same torch as ours."""
    binaries = VENV / "bin"
    if not (binaries / "traceml").exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        packages = ["torch", "numpy", "pillow", "zstandard", f"traceml-ai=={VERSION}"]
        pinned = ["-c", str(REPOSITORY / "constraints.txt")]
        subprocess.run([str(binaries / "pip"), "install", "-q", *pinned, *packages], check=True)
    return binaries
