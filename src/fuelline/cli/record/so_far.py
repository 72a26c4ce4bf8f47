"""The verdict so far, for `fuelline watch`: a diagnosis of what was recorded until now.

It is the same as `fuelline diagnose` gives, made in a process of its own that steps back behind
everything else (nice 19): the screen does not wait for it, and it costs the machine little, as the
next one begins only after 20 times as long as the last one took; for `serve` later each time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fuelline.record.launch import end_process, own_python
from fuelline.schema.errors import FuellineError

if TYPE_CHECKING:
    from types import TracebackType

    from fuelline.schema.diagnosis.live import Snapshot

_LEAST_S = 15.0
"""Between the end of one diagnosis and the start of the next."""
_REST = 20
"""Times as long as a diagnosis took nothing is done: 5 % of a core at most."""
_LONGEST_REST = 200
"""Where it grows: 0.5 %."""
_LONGEST_S = 120.0
"""For one that is waited for."""


class VerdictSoFar:
    """Asks again and again, in the background."""

    def __init__(self, run_dir: Path, *, growing: int = 1) -> None:
        """`growing`: times as long as the last rest each next one is, for who looks for hours."""
        self._told: dict[str, Any] = {}
        """The last answer, as fields of a `Snapshot`; empty until there is one."""
        self._run_dir = run_dir
        self._child: subprocess.Popen[bytes] | None = None
        self._since_s = 0.0
        self._due_s = 0.0
        self._growing, self._rest = growing, _REST

    def __enter__(self) -> VerdictSoFar:  # noqa: PYI034 - Self came with 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    def follow(self, run_dir: Path, *, is_over: bool) -> None:
        """Take an answer, or ask for one: of another run at once, of one that is over once."""
        if run_dir != self._run_dir:
            self._stop()
            self._run_dir, self._told, self._due_s = run_dir, {}, 0.0
        if self._child is not None and self._child.poll() is not None:
            self._take(self._child)
            rest_s = max(_LEAST_S, self._rest * (time.monotonic() - self._since_s))
            self._rest = min(self._rest * self._growing, _LONGEST_REST)
            self._due_s = float("inf") if is_over else time.monotonic() + rest_s
        if self._child is None and time.monotonic() >= self._due_s:
            self._ask()

    def put_into(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the last answer."""
        return msgspec.structs.replace(snapshot, **self._told)

    def wait(self) -> None:
        """Until there is an answer, or there will be none."""
        if self._child is None:
            self._ask()
        if self._child is not None:
            try:
                self._child.wait(_LONGEST_S)
            except subprocess.TimeoutExpired:
                self._stop()
                return
            self._take(self._child)

    def _ask(self) -> None:
        self._since_s = time.monotonic()
        try:
            self._child = subprocess.Popen(
                own_python("fuelline.cli.record.so_far", [str(self._run_dir.absolute())]),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:  # no process to be had; later perhaps
            self._due_s = self._since_s + _LEAST_S

    def _take(self, child: subprocess.Popen[bytes]) -> None:
        """What it said, a line of JSON that fits into the pipe; nothing of one that failed."""
        output = child.stdout.read() if child.stdout is not None else b""
        self._stop()
        try:
            self._told = json.loads(output) if output else self._told
        except ValueError:
            return

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            if child.poll() is None:
                end_process(child)
            if child.stdout is not None:
                child.stdout.close()


def main(words: list[str]) -> int:
    """The process itself: the verdict as a line of JSON."""
    os.nice(19)
    from fuelline import pipeline  # noqa: PLC0415 - loads polars, which the screen need not

    try:
        diagnosis = pipeline.diagnose_run(Path(words[0]))
    except (FuellineError, OSError):
        return FuellineError.exit_code
    verdict = diagnosis.verdict
    said = verdict.sentence if verdict.code is None else f"{diagnosis.title()}: {verdict.sentence}"
    lost = (each.lost_share for each in diagnosis.findings if each.code == verdict.code)
    told = {
        "verdict": said[:2000],
        "code": verdict.code,
        "stage": verdict.stage,
        "limit": verdict.limit,
        "lost_share": next(lost, None),
    }
    sys.stdout.write(json.dumps(told) + "\n")
    return 0
