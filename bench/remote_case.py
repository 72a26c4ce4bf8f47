"""One randomised loader whose batches workers elsewhere prepare as well; all must be the same.

A case is one of bench.elastic_case, and what happens to its remote workers: at which batch how many
of them get work, and at which batch one of them is killed, all of them (a node that is lost), or
the helper process, which is what the death of Ray's head comes to. Workers are processes of this
machine here (bench.remote_zygote) that run what they run under Ray, from the first line.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import remote_zygote
from bench.elastic_case import Case, Scripted, draw_case, iterate
from fuelline.fix.elastic.journal import FixJournal
from fuelline.fix.elastic.mailboxes import ErrandDone
from fuelline.fix.remote import crew as crews

KINDS = ("plain", "nested", "text", "failing", "wide", "ragged", "arrays", "objects")
"""Without those that draw, or ask which worker they are in: these stay on this host."""
LONGEST_S = 120.0
GONE_S = 2.0
"""After a job's end no worker may be left."""


@dataclass(frozen=True)
class RemoteCase:
    """What is drawn at random."""

    case: Case
    remote: int
    begin_at: int
    """The batch after which they get work."""
    kills: tuple[tuple[int, str], ...]


def draw_remote_case(draw: random.Random) -> RemoteCase:
    """A loader that may have workers elsewhere, in a job that has some luck or none."""
    case = draw_case(draw)
    while case.kind not in KINDS or not case.in_order:
        case = draw_case(draw)
    kills = [
        (draw.randint(1, 20), draw.choice(("worker", "worker", "node", "head")))
        for _ in range(draw.choice((0, 0, 1, 1, 2)))
    ]
    case = replace(case, persistent=draw.random() < 0.5)
    return RemoteCase(case, draw.randint(1, 3), draw.choice((0, 0, 1, 3)), tuple(sorted(kills)))


class Zygote:
    """The process that workers are forked from."""

    def __enter__(self) -> Zygote:  # noqa: PYI034
        self._folder = tempfile.TemporaryDirectory(prefix="fuelline-zygote-")
        self.path = f"{self._folder.name}/socket"
        command = [sys.executable, "-m", "bench.remote_zygote", self.path]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        self._process = subprocess.Popen(command, env=environment)
        while not Path(self.path).exists():
            if self._process.poll() is not None:
                self._folder.cleanup()
                raise RuntimeError(f"{command} ended with {self._process.returncode}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def address(self) -> str:
        """As the helper takes it."""
        command = [sys.executable, "-S", "-E", remote_zygote.__file__, self.path, "ask"]
        host = {"address": "127.0.0.1", "cores": 4, "command": command}
        return "processes:" + json.dumps([host])

    def list_workers(self, helper: int) -> list[int]:
        """Those of a helper that live."""
        names = [path.name.partition("-") for path in Path(self._folder.name).glob("*-*")]
        pids = [int(pid) for asker, _, pid in names if int(asker) == helper]
        return [pid for pid in pids if _is_alive(pid)]


class RemoteScript(Scripted):
    """Does to remote workers what the case says."""

    def __init__(self, remote_case: RemoteCase, zygote: Zygote) -> None:
        self._remote_case = remote_case
        self._zygote = zygote
        self.crew = crews.RemoteCrew(zygote.address(), 1, FixJournal("/nonexistent/journal"))
        self.helper = 0
        self._draw = random.Random(remote_case.case.seed)
        self.delivered = 0
        self.is_ready = False
        super().__init__(remote_case.case, self.crew)

    def begin_epoch(self, iterator: Any) -> None:
        """Wait until the workers have what this iterator's have; a job would go on meanwhile."""
        super().begin_epoch(iterator)
        if not self.is_ready:
            self.crew.step(iterator, self._remote_case.remote)
        self._await(iterator)
        if self._remote_case.begin_at == 0:
            self._use(iterator)

    def _await(self, iterator: Any) -> None:
        results, kept = iterator._fl_context.results, []
        deadline = time.monotonic() + LONGEST_S
        while not (self.crew._has_packed or self.crew._is_over or iterator._fl_remote):
            message = results.get(LONGEST_S)
            if type(message[0]) is ErrandDone:
                self.end_errand(iterator, message[0].result)
            else:
                kept.append(message)
        results._own.extendleft(reversed(kept))
        while not (self.is_ready or self.crew.figures is not None or self.crew._is_over):
            if time.monotonic() > deadline:
                raise TimeoutError("no workers")
            time.sleep(0.01)
            self.crew._poll()
        self.helper = self.helper or self.crew._pid
        self.is_ready |= self.crew.figures is not None

    def _use(self, iterator: Any) -> None:
        count = self.crew.open(iterator, self._remote_case.remote)
        if count:
            iterator.fl_resize(
                iterator.fl_active, iterator._fl_window, count, self._draw.random() + 0.5
            )

    def count(self, iterator: Any, began_ns: int, ended_ns: int, batch: Any) -> None:
        """A batch was given out."""
        super().count(iterator, began_ns, ended_ns, batch)
        if self.taken == self._remote_case.begin_at:
            self._use(iterator)
        for at, what in self._remote_case.kills:
            if at == self.taken:
                self._kill(what)

    def _kill(self, what: str) -> None:
        workers = self._zygote.list_workers(self.helper)
        victims = {"worker": workers[:1], "node": workers, "head": [self.helper]}[what]
        for pid in filter(None, victims):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def differs(case: RemoteCase, zygote: Zygote) -> tuple[str, dict[str, int]]:
    """What is not the same, empty if all is; and how often what happened."""
    script = RemoteScript(case, zygote)
    plain = iterate(case.case, elastic=False)
    elastic = iterate(case.case, elastic=True, controller=script)
    batches = script.crew._tally.batches
    script.crew.close()
    left = _count_left(script, zygote)
    names = ("batches", "errors", "random streams of the main process", "kept batches")
    one, two = plain.comparable(in_order=True), elastic.comparable(in_order=True)
    problems = [name for name, a, b in zip(names, one, two, strict=True) if a != b]
    problems += ["workers left behind"] * bool(left)
    return ", ".join(problems), {
        "ready": int(script.is_ready),
        "batches": batches,
        "kills": len(case.kills) if batches else 0,
    }


def _count_left(script: RemoteScript, zygote: Zygote) -> int:
    deadline = time.monotonic() + GONE_S
    while time.monotonic() < deadline:
        left = zygote.list_workers(script.helper) if script.helper else []
        if not left and not _is_alive(script.helper):
            return 0
        time.sleep(0.02)
    return len(zygote.list_workers(script.helper)) + 1


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return bool(pid) and state not in {"Z", "X"}
