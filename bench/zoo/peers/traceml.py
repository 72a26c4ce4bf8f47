"""traceml-ai on the zoo: an environment of its own, its two lines in the loop, its verdict as told.

It says what a step's time went to, not what limits it. So INPUT-BOUND becomes stage `input` with an
unnamed limit: its stage can be right, both coordinates cannot. COMPUTE-BOUND and BALANCED are taken
as healthy; RESIDUAL-HEAVY, time that is neither input nor compute, as a pause. Its stragglers are
taken as `sync x imbalance` with the rank and the phase that it names; one of compute is taken as
`compute x code`, to its favour.
It starts ranks itself, so that they cannot be put into namespaces or groups of their own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from bench.zoo.case import HEALTHY, Culprit
from bench.zoo.fault import NotPlanted, OneRank
from bench.zoo.faults.links import Link
from bench.zoo.faults.mounts import SlowMount
from bench.zoo.faults.processes import REPOSITORY
from bench.zoo.job import JobError, run_job
from bench.zoo.outcome import Outcome, judge_culprit, judge_pair
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
    "STRAGGLER": ("sync", "imbalance"),
    "INPUT_STRAGGLER": ("sync", "imbalance"),
    "COMPUTE_STRAGGLER": ("sync", "imbalance"),
    "H2D_STRAGGLER": ("sync", "imbalance"),
    "RESIDUAL_STRAGGLER": ("sync", "imbalance"),
}
"""Kinds that are not here (NO_DATA, WARMUP, INCOMPLETE_DATA) are no verdict."""


def run_case(case: Case, load: str) -> Outcome:
    """One outcome. Its launcher runs inside the job's control groups: it starts the job itself."""
    base: dict[str, Any] = {
        "case": case.name,
        "tool": "traceml",
        "load": load,
        "truth": list(case.truth),
        "healthy": case.healthy,
    }
    missing = case.missing() or _cannot_start(case)
    if missing:
        return Outcome(**base, status="not-planted", words=f"needs {missing}")
    logs = RUNS / "traceml"
    shutil.rmtree(logs / case.name, ignore_errors=True)
    try:
        account = run_job(
            case,
            faulty=True,
            measure=False,
            launcher=(str(_installed() / "traceml"), "run", *_ranks(case)),
            between=("--logs-dir", str(logs), "--run-name", case.name, "--args"),
            env={"ZOO_TRACER": "traceml"},
        )
        told = json.loads((logs / case.name / "final_summary.json").read_text())
    except NotPlanted as reason:
        return Outcome(**base, status="not-planted", words=f"needs {reason}")
    except (JobError, OSError) as reason:
        return Outcome(**base, status="failed", words=str(reason))
    return Outcome(**base, **describe(account), **_judge(case, told["primary_diagnosis"]))


def _cannot_start(case: Case) -> str | None:
    alone = isinstance(case.fault, OneRank) and not isinstance(case.fault.fault, SlowMount)
    if isinstance(case.fault, Link) or alone:
        return "a launcher that starts one rank otherwise than the next"
    return None


def _ranks(case: Case) -> tuple[str, ...]:
    return ("--nproc-per-node", str(case.ranks)) if case.ranks else ()


def _judge(case: Case, primary: dict[str, Any]) -> dict[str, Any]:
    said, culprit = SAID.get(primary["kind"]), _find_culprit(primary)
    return {
        "said": said,
        "code": primary["kind"],
        "words": f"{primary['status']}: {primary['summary']} {primary['action']}",
        "status": judge_culprit(case, culprit, judge_pair(case.truth, said)),
        "culprit": str(case.culprit or ""),
        "said_culprit": str(culprit or ""),
        "false_alarm": case.healthy and said not in (HEALTHY, None),
    }


def _find_culprit(primary: dict[str, Any]) -> Culprit | None:
    """The slowest rank of a straggler, and the phase in which it is."""
    evidence = primary.get("evidence") or {}
    rank = (evidence.get("worst") or {}).get("rank")
    if not primary["kind"].endswith("STRAGGLER") or rank is None:
        return None
    is_compute = primary["kind"] == "COMPUTE_STRAGGLER"
    stage, limit = ("compute", "code") if is_compute else ("input", "unnamed")
    return Culprit(rank, stage, limit, str(evidence.get("phase", "")))


def _installed() -> Path:
    """The `bin` of its environment, made on first use with the same torch as ours."""
    binaries = VENV / "bin"
    if not (binaries / "traceml").exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        packages = ["torch", "numpy", "pillow", "zstandard", f"traceml-ai=={VERSION}"]
        pinned = ["-c", str(REPOSITORY / "constraints.txt")]
        subprocess.run([str(binaries / "pip"), "install", "-q", *pinned, *packages], check=True)
    return binaries
