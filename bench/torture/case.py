"""What is tried: a mode, a job, and something that happens to it, all drawn from one seed."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import dataclass, field
from typing import Any

MODES = {"run": 12, "quiet": 5, "fix": 3, "cache": 1, "packed": 1, "zoom": 1, "ranks": 1, "node": 1}
"""With weights. A mode other than run and quiet has a job that trains."""
FAULTS = {
    "none": 1,
    "ending": 4,
    "kill beside": 5,
    "stop beside": 2,
    "kill worker": 2,
    "odd job": 3,
    "run folder": 5,
    "signal from outside": 8,
    "streams": 3,
    "descriptors": 3,
    "file size": 2,
    "processes": 3,
    "address space": 3,
    "memory group": 3,
}
DEADLY = (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT, signal.SIGHUP)
ENDINGS = (
    "raise trouble", "exit 0", "exit 1", "exit 77", "_exit 5", "atexit 9",
    "signal 9", "signal 11", "signal 6", "signal 15",
)  # fmt: skip
FOLDERS = ("removed", "replaced", "closed", "read-only", "truncated", "garbled", "filled")
ODD = ("closes descriptors", "forks", "threads", "new session", "executes itself")
STREAMS = ("<&-", ">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full", ">/dev/full", "<&- 2>&-")


@dataclass
class Case:
    """One of them; `told` goes to the job."""

    seed: int
    mode: str
    fault: str
    told: dict[str, Any]
    outside: dict[str, Any] = field(default_factory=dict)
    """A signal that the driver sends: to whom, which, and when."""
    limit: tuple[str, float] = ("", 0)
    """`-n 24` and so on; of memory, the part above what the plain job needs."""
    streams: str = ""

    @property
    def name(self) -> str:
        """All of it in a line."""
        keys = ("act", "whom", "count", "signal", "at", "end", "catches")
        told = {key: self.told[key] for key in keys if self.told.get(key) not in (None, "")}
        more = [str(each) for each in (told, self.outside, self.limit[0] and self.limit) if each]
        return " ".join([self.mode, self.told["kind"], self.fault, *more, self.streams])


def draw(seed: int) -> Case:
    """The case of this seed, always the same."""
    rng = random.Random(seed)
    mode = _choose(rng, MODES)
    fault = _choose(rng, FAULTS)
    kind = "ranks" if mode == "ranks" else "torch"
    if mode in {"run", "quiet"} and rng.random() < 0.8:
        kind = "plain"
    if kind == "plain" and fault == "kill worker":
        kind = "torch"
    if kind == "ranks" and fault in {"processes", "address space", "memory group", "odd job"}:
        fault = "kill beside"
    steps = rng.choice((10, 30))  # few sorts of plain jobs, so that their outcomes are known soon
    told: dict[str, Any] = {
        "kind": kind,
        "steps": steps,
        "pause_s": rng.choice((0.003, 0.03)),
        "workers": rng.choice([0, 2]) if kind == "torch" else 0,
        "at": rng.choice((0, 3, 7)),
        "end": rng.choice(("", "", "", "exit 3")),
    }
    case = Case(seed, mode, fault, told)
    _DRAWN[fault](case, rng)
    return case


def _choose(rng: random.Random, weights: dict[str, int]) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]


def _end(case: Case, rng: random.Random) -> None:
    case.told["end"] = rng.choice(ENDINGS)


def _kill_beside(case: Case, rng: random.Random) -> None:
    whom = rng.choice(("observer", "report", "launcher", "py-spy"))
    case.told |= {"act": "kill", "whom": whom, "signal": int(rng.choice(DEADLY))}
    if whom == "py-spy":  # bursts begin two seconds after training does
        case.told |= {"steps": 60, "pause_s": 0.05, "at": 55}


def _stop_beside(case: Case, rng: random.Random) -> None:
    whom = rng.choice(("observer", "report", "launcher", "worker", "launcher"))
    case.told |= {"act": "stop", "whom": whom}


def _kill_worker(case: Case, rng: random.Random) -> None:
    case.told |= {"act": "kill", "whom": "worker", "workers": 2}
    case.told["signal"] = int(rng.choice((signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)))
    if case.told["kind"] == "ranks":
        case.told["workers"] = 1


def _odd(case: Case, rng: random.Random) -> None:
    case.told |= {"act": "self", "whom": rng.choice(ODD), "workers": 0}


def _folder(case: Case, rng: random.Random) -> None:
    case.told |= {"act": "folder", "whom": rng.choice(FOLDERS)}


def _signal(case: Case, rng: random.Random) -> None:
    case.told["catches"] = rng.random() < 0.4
    case.told["steps"], case.told["pause_s"] = 40, 0.03
    case.outside = {
        "whom": rng.choice(("job", "launcher", "launcher", "group", "group", "observer", "report")),
        "signal": int(rng.choice((*DEADLY, signal.SIGUSR1, signal.SIGQUIT))),
        "after_s": round(rng.uniform(0, 3), 2),
        "from_start": rng.random() < 0.3,
    }


def _streams(case: Case, rng: random.Random) -> None:
    case.streams = rng.choice(STREAMS)


def _descriptors(case: Case, rng: random.Random) -> None:
    limit = rng.choice((16, 24, 40, 64, 100, 256))
    case.limit = ("-n", limit)
    case.told |= {"act": "self", "whom": "opens files", "count": limit - 12}


def _file_size(case: Case, rng: random.Random) -> None:
    case.limit = ("-f", rng.choice((0, 4, 16, 100, 1000)))
    if case.told["kind"] == "torch":  # whose files the limit may stop us from copying
        case.mode = rng.choice((case.mode, "cache", "packed"))


def _processes(case: Case, rng: random.Random) -> None:
    limit = rng.choice((4, 8, 12, 24, 60, 200, 410, 500))
    case.limit = ("-u", limit)
    case.told |= {"act": "self", "whom": "a crowd", "count": min(limit, 60) - 3, "workers": 0}


def _space(case: Case, rng: random.Random) -> None:
    case.limit = ("-v", rng.choice((1.01, 1.05, 1.2, 1.5, 2, 4)))


def _memory(case: Case, rng: random.Random) -> None:
    case.limit = ("memory", rng.choice((1.1, 1.2, 1.5, 2, 4)))


_DRAWN = {
    "none": lambda *_: None,
    "ending": _end,
    "kill beside": _kill_beside,
    "stop beside": _stop_beside,
    "kill worker": _kill_worker,
    "odd job": _odd,
    "run folder": _folder,
    "signal from outside": _signal,
    "streams": _streams,
    "descriptors": _descriptors,
    "file size": _file_size,
    "processes": _processes,
    "address space": _space,
    "memory group": _memory,
}


def is_felt_plain(case: Case) -> bool:
    """Whether what happens reaches a plain job, too, which must then be run with it."""
    beside = {"kill beside", "run folder", "signal from outside", "none"}
    is_beside = case.fault == "stop beside" and case.told["whom"] != "worker"
    return case.fault not in beside and not is_beside


def is_race(case: Case) -> bool:
    """Whether the plain job itself does not always end alike.

    A worker that is killed may be missed, or have given its last batch already; when one of the
    ranks ends, the other may fail in its last collective, or be through.
    """
    if case.told["kind"] != "ranks":
        return case.fault == "kill worker"
    if case.fault == "signal from outside":
        return case.outside["whom"] in {"job", "launcher", "group"}
    return case.fault in {"ending", "kill worker", "kill beside"}


def kills_torchrun(case: Case) -> bool:
    """Whether torchrun itself is killed: its ranks then wait for a store that died with it."""
    is_killed = case.outside.get("whom") == "job" and case.outside["signal"] == signal.SIGKILL
    return case.told["kind"] == "ranks" and is_killed


def needs_root(case: Case) -> bool:
    """Whether it needs another user, a mount or a control group."""
    filled = case.told.get("whom") == "filled" and case.fault == "run folder"
    return (filled or case.limit[0] in {"-u", "memory"}) and os.geteuid() != 0
