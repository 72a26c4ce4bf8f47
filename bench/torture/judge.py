"""Whether the recorded job came out as the plain one did: exit code or signal, output, result.

Where what happens depends on the moment, the plain job cannot be run beside it; then what may come
out is computed: the job dies of the signal after part of its output, or was done before. What it
had said when the signal was sent must be part of it.
"""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.torture.drive import GOES_ON, JOB

if TYPE_CHECKING:
    from bench.torture.case import Case
    from bench.torture.drive import Result

_OURS = re.compile(r"-m fuelline|/fuelline( |$)")
"""In a command line; paths of the bench may have the word, too."""


def find_complaint(case: Case, got: Result, plain: Result, clean: Result) -> str | None:
    """What is wrong, if anything is; `clean` is the plain job to which nothing happened."""
    complaint = find_remains(got, plain)
    is_too_tight = (plain.returncode, plain.results) != (clean.returncode, clean.results)
    if complaint is not None or (case.limit[0] and is_too_tight):
        return complaint  # under a limit that is too tight for the job itself anything may come out
    if case.outside:
        return _judge_signal(case, got, clean, case.outside["whom"], case.outside["signal"])
    if case.fault == "kill beside" and case.told["whom"] == "launcher":
        return _judge_signal(case, got, clean, "launcher", case.told["signal"])
    return _compare_felt(case, got, plain, clean)


def is_alike(case: Case, got: Result, other: Result, clean: Result) -> bool:
    """Whether the job ended as another plain run did, where that is a race; one that hangs did not.

    What remains of the job is not asked here: it is judged by the first plain run alone.
    """
    return not (got.hangs or other.hangs) and _compare_felt(case, got, other, clean) is None


def without_ranks(got: Result, killed: Result) -> Result:
    """Without ranks that wait for a killed torchrun, if those of the plain job `killed` do, too."""
    if not any(_is_rank(each) for each in killed.orphans):
        return got
    return replace(got, orphans=[each for each in got.orphans if not _is_rank(each)])


def _is_rank(command: str) -> bool:
    return JOB.name in command and not _OURS.search(command)


def find_remains(got: Result, plain: Result) -> str | None:
    """What is left of it that may not be; of a plain job that hangs all is."""
    if plain.hangs:
        return None
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


def _compare_felt(case: Case, got: Result, plain: Result, clean: Result) -> str | None:
    """By the plain job to which the same happened."""
    if case.fault != "kill worker":
        return _compare(got, plain)
    if case.mode == "fix" and _compare(got, clean) is None:
        return None  # it went on without the worker
    if plain.returncode == clean.returncode or got.returncode != plain.returncode:
        return _compare(got, plain)
    # When the loss is noticed depends on the moment.
    return None if _is_cut(case, got, clean) else _compare(got, plain)


def _judge_signal(case: Case, got: Result, clean: Result, whom: str, number: int) -> str | None:
    complaint = _compare(got, clean)
    is_sent = got.seen is not None or not case.outside
    if complaint is None or whom in {"observer", "report"} or not is_sent:
        return complaint
    if whom == "launcher" and got.returncode in GOES_ON and got.returncode == -number:
        same = (got.stdout, got.results) == (clean.stdout, clean.results)
        is_early = case.outside.get("from_start") and not got.stdout
        return None if same or is_early else f"the job did not go on: {complaint}"
    is_allowed = _may_end(case, got, number)
    if case.told.get("catches") and (got.returncode == 7 or case.told["kind"] == "ranks"):
        before = got.stdout.removesuffix(f"caught {signal.Signals(number).name}\n")
        is_allowed |= got.returncode == 7 and before != got.stdout
        got = replace(got, stdout=before)
    return None if is_allowed and _is_cut(case, got, clean) else complaint


def _may_end(case: Case, got: Result, number: int) -> bool:
    """Whether that is an exit code of a job that got the signal."""
    if case.told["kind"] == "ranks":
        return got.returncode != 0
    allowed = {-number}
    if number == signal.SIGINT and case.told["workers"]:
        allowed.add(1)  # a worker's death may be noticed first
    if case.outside.get("from_start") and number == signal.SIGINT:
        allowed |= {128 + number, 1}
    return got.returncode in allowed


def _is_cut(case: Case, got: Result, clean: Result) -> bool:
    """Whether it was ended in between: nothing is lost of what came before, nothing changed."""
    if case.outside:
        least = got.seen or ""
    else:  # the job said the step, then sent the signal
        least = "".join(f"{line}\n" for line in clean.stdout.splitlines()[: case.told["at"] + 1])
    if got.stdout == clean.stdout and (case.told["kind"] != "ranks" or case.fault == "kill worker"):
        return got.results == clean.results  # it came to its end, where it leaves them
    return clean.stdout.startswith(got.stdout) and got.stdout.startswith(least)
