"""All runs that are known here, as a list needs them; each is looked at again when it has changed.

Ten thousand runs take a while to be looked at for the first time: the list shows those that were,
and says how many are left. Runs may vanish at any moment.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from fuelline.schema.errors import FuellineError
from fuelline.store.listing import describe, find_start_ns
from fuelline.store.runs import list_known

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.store.listing import ListedRun

MOST_SHOWN = 200
"""Rows of one answer."""
REST_S = 5.0
"""Between two looks at the store."""
_REST = 100
"""Times as long as a look took a core nothing is done: 1 % of it at most."""
_GOES_ON = ("running", "unfinished")


class RunShelf:
    """The runs, newest first; its own thread keeps it up to date."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[int, ListedRun]] = {}
        self._paths: dict[str, Path] = {}
        self._starts: dict[Path, tuple[int, int]] = {}
        """When a run was started, as long as its folder does not change."""
        self._left = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="runs", daemon=True)

    def open(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._over.set()

    def find(self, run_id: str) -> Path | None:
        """The folder of a known run; no other folder can be asked for."""
        return self._paths.get(run_id)

    def state_of(self, run_id: str) -> str:
        """As of `ListedRun`; empty if it was not looked at yet."""
        found = self._runs.get(run_id)
        return "" if found is None else found[1].state

    def newest(self) -> list[ListedRun]:
        """All that were looked at, the last that was started first."""
        return [run for _, run in reversed(list(self._runs.values()))]

    def search(self, words: str, state: str, skip: int) -> dict[str, Any]:
        """Runs that have all these words in their id or verdict, in this state if it is given."""
        wanted = words.lower().split()
        fitting = [
            run
            for run in self.newest()
            if (not state or run.state == state) and all(word in _words_of(run) for word in wanted)
        ]
        return {
            "runs": fitting[skip : skip + MOST_SHOWN],
            "count": len(fitting),
            "known": len(self._runs),
            "left": self._left,
        }

    def look(self) -> None:
        """At all that is new or has changed."""
        known = list_known(self._find_start_ns)
        self._starts = {run.path: self._starts[run.path] for run in known}
        self._paths = {run.run_id: run.path for run in known}
        for run_id in self._runs.keys() - self._paths.keys():
            self._runs.pop(run_id, None)
        kept: dict[str, tuple[int, ListedRun]] = {}
        for number, run in enumerate(known):
            if self._over.is_set():
                return
            changed_ns = _changed_ns(run.path)
            before = self._runs.get(run.run_id)
            if before is None or before[0] != changed_ns or before[1].state in _GOES_ON:
                kept[run.run_id] = self._runs[run.run_id] = (
                    changed_ns,
                    describe(run.path, run.run_id),
                )
            else:
                kept[run.run_id] = before
            self._left = len(known) - number - 1
        self._runs = kept  # in the order of their start

    def _find_start_ns(self, path: Path) -> int:
        changed_ns = _changed_ns(path)
        before = self._starts.get(path)
        if before is None or before[0] != changed_ns:
            before = self._starts[path] = (changed_ns, find_start_ns(path))
        return before[1]

    def _keep(self) -> None:
        while not self._over.is_set():
            began_s = time.thread_time()
            try:
                self.look()
            except (FuellineError, OSError):  # the store is gone, for a while perhaps
                self._left = 0
            self._over.wait(max(REST_S, _REST * (time.thread_time() - began_s)))


def _words_of(run: ListedRun) -> str:
    verdict = "" if run.verdict is None else run.verdict.words
    return f"{run.run} {run.state} {verdict}".lower()


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
