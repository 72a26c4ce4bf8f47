"""Runs a case's job once, planted or healthy, alone or under a recorder, and reads its account."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.zoo import launch
from bench.zoo.faults.processes import REPOSITORY, end

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.zoo.case import Case

JOB_TIMEOUT_S = 150.0
LOCK = REPOSITORY / "bench" / "out" / "zoo.lock"


class JobError(RuntimeError):
    """The job itself did not end well; the message has the end of its output."""


@dataclass(frozen=True)
class Account:
    """What a job says of itself in its last line."""

    steps: int
    samples_per_s: float
    busy_frac: float
    """Share of the time the emulated device was busy; -1 where the job has none."""
    wait_frac: float | None
    """Share of the time spent in `next()`, if it was asked to measure that."""


def run_job(
    case: Case,
    *,
    faulty: bool,
    measure: bool,
    recorder: tuple[str, ...] = (),
    launcher: tuple[str, ...] | None = None,
    between: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
    device: str = "",
) -> Account:
    """Plant the fault, run the job to its end, undo the fault.

    The command is `recorder [enter the fault] launcher script between arguments after`; the
    launcher is the one that suits the case unless another is given. `device` is `emu`, or empty for
    the queue of sleeps that occupies no device of torch's (`examples/emulated.py`).
    """
    fault = case.fault if faulty else case.ambient
    measures = {
        "ZOO_MEASURE": "1" if measure else "0",
        "ZOO_DEVICE": case.device or device,
        "ZOO_DEVICE_TIME": f"{case.device_time:.3f}",
        **case.env,
    }
    with my_turn():
        data = case.prepare()
        with fault.plant(data or Path()) as planted:
            script, *arguments = case.command(planted.data if data else None, faulty=faulty)
            started_by = launcher or launch.launcher(case, planted)
            inside = planted.command([*started_by, script, *between, *arguments, *after])
            path = {"PYTHONPATH": str(REPOSITORY)}
            environment = {**os.environ, **path, **measures, **planted.env, **(env or {})}
            return read_account(_output([*recorder, *inside], environment))


@contextlib.contextmanager
def my_turn(path: Path | None = None) -> Iterator[None]:
    """One job at a time on this machine: two zoos at once would spoil each other's faults."""
    path = path or LOCK
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_account(output: str) -> Account:
    """The account in a job's output."""
    for line in reversed(output.splitlines()):
        if line.startswith('{"zoo":'):
            return Account(**json.loads(line)["zoo"])
    raise JobError(f"the job gave no account of itself; its output ends: {output[-2000:]!r}")


def _output(command: list[str], env: dict[str, str]) -> str:
    process = subprocess.Popen(
        command,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=JOB_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        end(process)
        raise JobError(f"not done after {JOB_TIMEOUT_S:.0f} s") from None
    except BaseException:
        end(process)
        raise
    if process.returncode != 0:
        raise JobError(f"exit code {process.returncode}; its output ends: {output[-2000:]!r}")
    return output
