"""`fuelline attach` on jobs whose truth is known: cases of the zoo, met in mid-run.

    python -m bench.attach cases [--tier T1] [--seconds 40] [NAME ...]
    python -m bench.attach harm [--cycles 200]     attach, detach and kill in a loop, then compare
    python -m bench.attach cost [--seconds 60]     CPU of the look, and what it costs the job

`cases`: the job runs alone for some seconds, then it is attached to, then it ends by itself. The
verdict is judged as the zoo judges one that was recorded from the start. The job's own timer around
`next()` is the truth for the share of waiting, and its last line for the number of steps.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.results import machine, write_section
from bench.zoo.cases import CASES
from bench.zoo.fault import NotPlanted
from bench.zoo.job import JobError, run_job
from bench.zoo.outcome import judge
from bench.zoo.record import see_planted

OUT = Path(__file__).parent / "out" / "attach"
FUELLINE = (sys.executable, "-m", "fuelline")
BEFORE_S = 12.0
"""The job runs alone for so long: it loads, and its loader fills up."""
_TORCH_JOB = Path(__file__).parent / "attach_job.py"


def run_cases(names: list[str], seconds: float, tier: str) -> None:
    """Each case once; one line each, and a section of the results."""
    OUT.mkdir(parents=True, exist_ok=True)
    plain = [case for case in CASES if not case.ranks and not case.device]
    chosen = [case for case in CASES if case.name in names] if names else plain
    rows = []
    for case in chosen:
        missing = case.missing()
        if missing:
            print(f"{case.name:34} not planted: needs {missing}", flush=True)
            continue
        run_dir = OUT / f"{case.name}.{tier}"
        shutil.rmtree(run_dir, ignore_errors=True)
        recorder = (
            sys.executable, "-m", "bench.attach", "beside", str(run_dir), str(seconds), tier, "--",
        )  # fmt: skip
        last = ("--seconds", str(seconds + BEFORE_S + 10))
        try:
            account = run_job(case, faulty=True, measure=True, recorder=recorder, after=last)
            see_planted(case, account)
            diagnosis = json.loads((run_dir.with_suffix(".json")).read_text())
        except (JobError, NotPlanted, OSError, ValueError) as reason:
            print(f"{case.name:34} failed: {str(reason)[-300:]}", flush=True)
            continue
        outcome = judge(case, diagnosis)
        waited = _share(diagnosis, "input") + _share(diagnosis, "epoch start")
        rows.append(
            {
                "case": case.name,
                "status": outcome["status"],
                "truth": " or ".join("x".join(pair) for pair in case.truth),
                "said": "x".join(outcome["said"]) if outcome["said"] else "cannot tell",
                "alarm": outcome["false_alarm"],
                "healthy": case.healthy,
                "wait": waited,
                "true_wait": account.wait_frac,
                "words": outcome["words"],
            }
        )
        row = rows[-1]
        print(
            f"{row['case']:34} {row['status']:11} said {row['said']:24} truth {row['truth']:24} "
            f"wait {waited:.1%} true {account.wait_frac:.1%}",
            flush=True,
        )
        (OUT / f"cases.{tier}.json").write_text(json.dumps(rows, indent=1))
    _write_cases(rows, seconds, tier)


def _share(diagnosis: dict[str, Any], part: str) -> float:
    return float(sum(each["share"] for each in diagnosis["budget"] if each["part"] == part))


def _write_cases(rows: list[dict[str, Any]], seconds: float, tier: str) -> None:
    right = sum(row["status"] == "right" for row in rows)
    unsure = sum(row["status"] == "no-verdict" for row in rows)
    alarms = sum(row["alarm"] for row in rows)
    off = [abs(row["wait"] - row["true_wait"]) for row in rows if row["true_wait"] is not None]
    lines = [
        f"### Attached in mid-run, {tier}, {seconds:.0f} s",
        "",
        f"{machine()}; other work shared the cores.",
        "",
        f"{machine()}; other work shared the cores.",
        "",
        f"{right} of {len(rows)} cases right, {unsure} cannot tell, "
        f"{len(rows) - right - unsure} wrong, {alarms} false alarms on healthy ones. Waiting for "
        f"input against the job's own timer: median {statistics.median(off):.1%} off, largest "
        f"{max(off):.1%}."
        if off
        else "",
        "",
        "| case | said | truth | | wait | by its timer |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['case']} | {row['said']} | {row['truth']} | {row['status']} | {row['wait']:.1%} "
        f"| {row['true_wait']:.1%} |"
        for row in rows
    ]
    write_section(f"attach-{tier}", "\n".join(lines))


def run_beside(words: list[str]) -> int:
    """Start a job, attach to it after a while, keep the diagnosis, and leave as the job left."""
    run_dir, seconds, tier, _, *command = words
    job = subprocess.Popen(command)
    time.sleep(BEFORE_S)
    looked = subprocess.run(
        [*FUELLINE, "attach", str(job.pid), "--seconds", seconds, "--run-dir", run_dir, "--json"]
        + (["--tier", tier] if tier == "T0" else []),
        capture_output=True,
        text=True,
        check=False,
    )
    Path(run_dir).with_suffix(".json").write_text(looked.stdout)
    if looked.returncode:
        print(looked.stderr[-1500:])
    return job.wait() or looked.returncode


def run_harm(cycles: int) -> None:
    """Training with workers, attached to again and again and killed at random moments."""
    alone = _train([])
    with tempfile.TemporaryDirectory() as folder:
        beside = _train([folder, str(cycles)])
    print(f"alone {alone}\nattached {beside}")


def _train(beside: list[str]) -> dict[str, Any]:
    command = [sys.executable, str(_TORCH_JOB), "400" if not beside else "0"]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    return {"exit": job.wait()}


def main() -> int:
    """What was asked for."""
    if sys.argv[1:2] == ["beside"]:
        return run_beside(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="what", required=True)
    cases = commands.add_parser("cases")
    cases.add_argument("names", nargs="*")
    cases.add_argument("--seconds", type=float, default=40.0)
    cases.add_argument("--tier", default="T1", choices=("T0", "T1"))
    options = parser.parse_args()
    if options.what == "cases":
        run_cases(options.names, options.seconds, options.tier)
    return 0


if __name__ == "__main__":
    sys.exit(main())
