"""Whether the recorded job came out as the plain one did: exit code or signal, output, result.

Where what happens depends on the moment, the plain job cannot be run beside it; then what may come
out is computed: the job dies of the signal after part of its output, or was done before.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.torture.drive import GOES_ON, JOB

if TYPE_CHECKING:
    from bench.torture.case import Case
    from bench.torture.drive import Result


def find_complaint(case: Case, got: Result, plain: Result, clean: Result) -> str | None:
    """What is wrong, if anything is; `clean` is the plain job to which nothing happened."""
    if _may_leave_ranks(case):
        got = replace(got, orphans=[each for each in got.orphans if JOB.name not in each])
    complaint = None if plain.hangs else _find_remains(got, plain)
    is_too_tight = (plain.returncode, plain.results) != (clean.returncode, clean.results)
    if complaint is not None or (case.limit[0] and is_too_tight):
        return complaint  # under a limit that is too tight for the job itself anything may come out
    if case.outside:
        return _judge_signal(case, got, clean, case.outside["whom"], case.outside["signal"])
    if case.fault == "kill beside" and case.told["whom"] == "launcher":
        return _judge_signal(case, got, clean, "launcher", case.told["signal"])
    if (
        case.fault == "kill worker"
        and _is_prefix(got, clean)
        and got.returncode == plain.returncode
    ):
        return None
    # A worker that was killed may not have been missed any more, or `--fix` went on without it.
    return _compare(got, clean if case.fault == "kill worker" else plain)


def _may_leave_ranks(case: Case) -> bool:
    """Whether torchrun itself is killed: its ranks then wait for a store that died with it.

    A plain job's, too, for half an hour; only what is ours may not be left running.
    """
    is_killed = case.outside.get("whom") == "job" and case.outside["signal"] == signal.SIGKILL
    return case.told["kind"] == "ranks" and is_killed


def _find_remains(got: Result, plain: Result) -> str | None:
    if got.hangs:
        return "hangs"
    if got.orphans:
        return f"left running: {got.orphans}"
    if more := sorted(set(got.left) - set(plain.left)):
        return f"left behind: {more}"
    if "Traceback" in got.stderr and "fuelline/cli" in got.stderr:
        return f"a traceback of ours: {got.stderr[-600:]}"
    return None


def _compare(got: Result, wanted: Result) -> str | None:
    for what in ("returncode", "stdout", "results"):
        ours, theirs = getattr(got, what), getattr(wanted, what)
        if ours != theirs:
            return (
                f"{what} {str(ours)[-200:]!r} and not {str(theirs)[-200:]!r}: {got.stderr[-500:]}"
            )
    return None


def _judge_signal(case: Case, got: Result, clean: Result, whom: str, number: int) -> str | None:
    complaint = _compare(got, clean)
    if complaint is None or whom in {"observer", "report"}:
        return complaint
    if whom == "launcher" and got.returncode in GOES_ON and got.returncode == -number:
        same = (got.stdout, got.results) == (clean.stdout, clean.results)
        is_early = case.outside.get("from_start") and not got.stdout
        return None if same or is_early else f"the job did not go on: {complaint}"
    if case.told["kind"] == "ranks":
        return None if got.returncode and _is_prefix(got, clean) else complaint
    name = signal.Signals(number).name
    if case.told.get("catches") and got.returncode == 7:
        lines = got.stdout.splitlines()
        is_once = lines[-1:] == [f"caught {name}"] and got.stdout.count("caught") == 1
        return None if is_once else complaint
    allowed = {-number}
    if number == signal.SIGINT and case.told["workers"]:
        allowed.add(1)  # a worker's death may be noticed first
    if case.outside.get("from_start"):
        allowed |= {128 + number, 1} if number == signal.SIGINT else set()
    return None if got.returncode in allowed and _is_prefix(got, clean) else complaint


def _is_prefix(got: Result, clean: Result) -> bool:
    return clean.stdout.startswith(got.stdout)
