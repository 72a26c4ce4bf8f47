"""Runs the user's script for a trial, and reads what came of it; used by `fuelline tune`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuelline.cli.record.orphans import end_orphans
from fuelline.fix.job_site import TRIALS_VARIABLE, put_on_path
from fuelline.fix.tune.search import MeasuredSetting
from fuelline.record.launch import launch
from fuelline.schema.diagnosis.trials import Setting
from fuelline.schema.errors import InputError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BASELINE_S = 13.0
"""Training that is recorded for the model: three waits for the device at a loss read every 25 steps
of 130 ms. Twice that where epochs are short, to see the end of a job that has few of them: what
starting workers costs is weighed against its length."""
START_S = 1.6
"""Of a turn: workers start, and its queue becomes level. With the job and four settings, two rounds
of three seconds and the recording, no more than 60 s are spent on trials."""
LOOK_S = 0.25
"""From one look at the trial's progress to the next."""
_INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)
_KNOBS = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")


@dataclass(frozen=True)
class Turns:
    """What to try in one run of the script."""

    settings: Sequence[tuple[Setting, ...]]
    seconds: float
    rounds: int
    job_batches: int | None = None
    """Of the whole job, if its end is known."""
    is_natural: bool = False
    """The job as it is, epochs and all, instead of turns."""


@dataclass(frozen=True)
class Report:
    """What the trial wrote."""

    account: dict[str, Any]
    seconds: float

    @property
    def site(self) -> str:
        """`file:line` of the call that made the loader."""
        return str(self.account["site"])

    def place(self) -> tuple[Path | None, int]:
        """The same, taken apart; None for code that is no file."""
        file, _, line = self.site.rpartition(":")
        path = Path(file)
        return (path, int(line)) if path.is_file() else (None, 0)

    def script(self) -> str:
        """The file alone."""
        return self.site.rpartition(":")[0]

    def settings(self) -> list[Setting]:
        """The loader's own."""
        own = self.account["settings"]
        known = [(knob, own[knob]) for knob in _KNOBS if own.get(knob) is not None]
        return [Setting(knob=knob, value=value) for knob, value in known]  # type: ignore[arg-type]

    def measured(self, count: int) -> list[MeasuredSetting]:
        """One a setting, in the order that they were asked in."""
        rows = self.account["turns"]
        return [
            _measured([row for row in rows if row["turn"] == number]) for number in range(count)
        ]


@dataclass(frozen=True)
class Baseline:
    """The job as it is, recorded."""

    run_dir: Path
    report: Report

    @property
    def seconds(self) -> float:
        """Of training."""
        return self.report.seconds

    @property
    def job_batches(self) -> int | None:
        """Of the whole job, if it came to its end meanwhile."""
        batches = self.report.account.get("job_batches")
        return None if batches is None else int(batches)


def _measured(rows: list[dict[str, Any]]) -> MeasuredSetting:
    blocks = tuple(rate for row in rows for rate in row["rates"])
    turns = tuple(sum(row["rates"]) / len(row["rates"]) for row in rows if row["rates"])
    problem = next((row["problem"] for row in rows if row["problem"]), None)
    return MeasuredSetting(blocks, turns, problem)


def record_baseline(command: list[str], folder: Path) -> Baseline:
    """Run the script as it is for some seconds of training, recorded."""
    run_dir = folder / "run"
    plan = _plan(folder / "baseline.json", Turns([()], BASELINE_S, 1, is_natural=True))
    # Standard output is for the answer, so the job's own goes the other way.
    outcome = launch(command, run_dir, more=_environment(plan), stdout=sys.stderr.fileno())
    if outcome.problem is not None:
        raise RefusedError(
            f"The job could not be recorded: {outcome.problem}. Nothing was tuned. "
            "`fuelline doctor` shows what this machine allows."
        )
    return Baseline(run_dir, _read(folder / "baseline.json", outcome.returncode))


def run_turns(
    command: list[str], folder: Path, turns: Turns, tell: Callable[[int, int], None]
) -> Report:
    """Run the script once more, with these settings in turns; `tell` hears of round and turn."""
    result = folder / "trials.json"
    environment = {**os.environ, **_environment(_plan(result, turns))}
    try:
        with subprocess.Popen(command, env=environment, stdout=sys.stderr.fileno()) as process:
            returncode = _await(process, Path(f"{result}.progress"), tell)
    except KeyboardInterrupt:
        end_orphans()  # it may be one that `subprocess` had not yet got hold of
        raise
    return _read(result, returncode)


def _await(
    process: subprocess.Popen[bytes], progress: Path, tell: Callable[[int, int], None]
) -> int:
    told = None
    while True:
        try:
            return process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            now = _read_progress(progress)
        except KeyboardInterrupt:
            process.kill()
            raise
        if now is not None and now != told:
            told = now
            tell(*now)


def _read_progress(path: Path) -> tuple[int, int] | None:
    """Round and turn that are under way, as the trial wrote them."""
    if not path.exists():
        return None
    found = json.loads(path.read_bytes())
    return int(found["round"]), int(found["turn"])


def _environment(plan: Path) -> dict[str, str]:
    return {TRIALS_VARIABLE: str(plan), **put_on_path()}


def _read(result: Path, returncode: int) -> Report:
    """The trial's account; a script that never came to its loader has none."""
    if returncode in _INTERRUPTED:
        raise KeyboardInterrupt
    if not result.exists():
        ending = f"exit code {returncode}" if returncode >= 0 else f"signal {-returncode}"
        raise InputError(
            f"The script ended ({ending}) before a DataLoader was iterated for training long "
            "enough to measure. Nothing was changed. `fuelline run` shows what it does."
        )
    account = json.loads(result.read_bytes())
    if returncode and not any(row["rates"] for row in account["turns"]):
        raise InputError(
            f"The script failed by itself (exit code {returncode}) at its first batches; its own "
            "words are above. Nothing was changed. Run it without fuelline first."
        )
    if account["problem"]:
        raise InputError(
            f"This job cannot be tuned: {account['problem']}. Nothing was changed. `fuelline run "
            "--fix` adapts the loader of each rank while it trains; or record it with `fuelline "
            "run` and ask `fuelline whatif --workers 4`."
        )
    return Report(account, float(account["seconds"]))


def _plan(result: Path, turns: Turns) -> Path:
    plan = {
        "result": str(result),
        "seconds": turns.seconds,
        "rounds": turns.rounds,
        "budget_s": turns.rounds * len(turns.settings) * (turns.seconds + START_S),
        "job_batches": turns.job_batches,
        "is_natural": turns.is_natural,
        "turns": [{each.knob: each.value for each in settings} for settings in turns.settings],
    }
    path = result.with_suffix(".plan")
    path.write_text(json.dumps(plan))
    return path
