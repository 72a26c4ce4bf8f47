"""`fuelline attach` on jobs whose truth is known: cases of the zoo, met in mid-run.

    python -m bench.attach cases [--tier T1] [--seconds 40] [NAME ...]
    python -m bench.attach harm [--steps 6000]     attach, detach and kill in a loop, then compare
    python -m bench.attach cost [--seconds 60]     CPU of a look and of following

`cases`: the job runs alone for some seconds, then it is attached to, then it ends by itself. The
verdict is judged as the zoo judges one that was recorded from the start. The job's own timer around
`next()` is the truth for the share of waiting, and its last line for the number of steps.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
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
LEAST_S = 5.0
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


def run_harm(steps: int) -> None:
    """Training with workers, alone and attached to: every second attacher is killed."""
    draw = random.Random(steps)
    (alone,) = _parameters([_start_job(steps)])
    ends: Counter[str] = Counter()
    job = _start_job(steps)
    with tempfile.TemporaryDirectory() as folder:
        while job.poll() is None:
            run_dir = Path(folder) / str(sum(ends.values()))
            look = subprocess.Popen(
                [*FUELLINE, "attach", str(job.pid), "--seconds", "5", "--run-dir", str(run_dir),
                 "--json"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            how = draw.choice((signal.SIGKILL, signal.SIGTERM))
            try:
                look.wait(draw.uniform(0.3, 5.0))
                ends["itself"] += 1
            except subprocess.TimeoutExpired:
                look.send_signal(how)
                look.wait()
                ends[how.name] += 1
            shutil.rmtree(run_dir, ignore_errors=True)
    (attached,) = _parameters([job])
    looks = sum(ends.values())
    ways = ", ".join(f"{count} ended by {name}" for name, count in sorted(ends.items()))
    same = "bit-identical to" if attached[1] == alone[1] else "DIFFERENT from"
    lines = [
        "### Attached to again and again: no harm",
        "",
        f"{machine()}; other work shared the cores.",
        "",
        (
            f"A training of {steps:,} steps with two workers, attached to {looks} times ({ways}): "
            f"exit code {attached[0]}, parameters {same} those of the same training alone. CPU of "
            f"the trainer {attached[2]:.1f} s, alone {alone[2]:.1f} s."
        ),
    ]
    write_section("attach-harm", "\n".join(lines))
    print("\n".join(lines))


def _start_job(steps: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(_TORCH_JOB), str(steps)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _parameters(jobs: list[subprocess.Popen[str]]) -> list[tuple[int, str, float]]:
    """Exit code, hash and CPU seconds of each."""
    found = []
    for job in jobs:
        output, _ = job.communicate()
        digest, cpu_s = output.split()
        found.append((job.returncode, digest, float(cpu_s)))
    return found


def run_cost(seconds: float) -> None:
    """CPU of everything that a look starts, less that of starting it, against time."""
    job = _start_job(1_000_000)
    try:
        time.sleep(BEFORE_S)
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            for length in (LEAST_S, LEAST_S + seconds):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                began_s = time.monotonic()
                subprocess.run(
                    [*FUELLINE, "attach", str(job.pid), "--seconds", str(length), "--json",
                     "--run-dir", f"{folder}/{length:.0f}"],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    check=True,
                )  # fmt: skip
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu_s = sum(after[:2]) - sum(before[:2])
                rows.append((length, cpu_s, time.monotonic() - began_s))
    finally:
        job.kill()
        job.communicate()
    (short, short_cpu, verdict_s), (long, long_cpu, _) = rows
    each_s = (long_cpu - short_cpu) / (long - short)
    lines = [
        "### What a look costs",
        "",
        f"{machine()}; other work shared the cores.",
        "",
        (
            f"A look of {long:.0f} s at a training with two workers took {long_cpu:.2f} s of CPU, "
            f"start and diagnosis included: {long_cpu / long:.1%} of a core (bar 10 %). A look of "
            f"{short:.0f} s took {short_cpu:.2f} s: {each_s:.2%} of a core a second more. "
            f"From the command to the verdict of the short one {verdict_s:.1f} s (bar 20 s)."
        ),
    ]
    write_section("attach-cost", "\n".join(lines))
    print("\n".join(lines))


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
    commands.add_parser("harm").add_argument("--steps", type=int, default=6000)
    commands.add_parser("cost").add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    if options.what == "harm":
        run_harm(options.steps)
    if options.what == "cost":
        run_cost(options.seconds)
    if options.what == "cases":
        run_cases(options.names, options.seconds, options.tier)
    return 0


if __name__ == "__main__":
    sys.exit(main())
