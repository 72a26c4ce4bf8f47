"""One look at a running job: the run's folder, the observer beside the job, and its end."""

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

from fuelline.record.attach.processes import Seen, boot_ticks_ns
from fuelline.record.attach.visits import Visits
from fuelline.record.headroom import Extent
from fuelline.record.launch import (
    describe_run,
    explain_observer,
    own_python,
    prepare_folder,
    step_back,
    stop_observer,
    write_facts,
)
from fuelline.record.samplers.procfs import NS_PER_TICK
from fuelline.schema.errors import RefusedError
from fuelline.schema.files import open_own
from fuelline.schema.run.recording import Tier

_UNSEEN: dict[Tier, tuple[dict[str, str], ...]] = {
    "T0": (
        {
            "what": "Python stacks of the job (tier T0: thread states and counters only)",
            "why": "it was attached to without them",
            "forbids": "forward, backward and optimizer apart, stages of preparing a batch, lines "
            "of code, waits behind pin_memory",
        },
    ),
    "T1": (
        {
            "what": "single steps and single batches (tier T1: stacks, thread states, counters)",
            "why": "the job was attached to and has no hooks: its steps are laid out evenly "
            "between two looks at its counters",
            "forbids": "the spread of step times, waits that an accelerator hides, what a request "
            "costs as more are in flight",
        },
    ),
    "T2": (
        {
            "what": "what the job did before hooks came into it (tier T2)",
            "why": "it was attached to while it ran",
            "forbids": "start-up, and how its loader was built",
        },
    ),
}


_NEVER_CAME = {
    "why": "they executed no Python while they were attached to, or refused the hooks",
    "forbids": "what these processes did, step by step and batch by batch",
}
_STAYED = {
    "why": "hooks were still in them some seconds after the end; they go by themselves",
    "forbids": "nothing",
}
_GRACE_S = 20.0
"""For the observer to write what it knows: stacks of eight trainers are laid out at the end."""
LIVE_PIECE_S = 3
"""Of stack samples while somebody watches: each piece costs 20 ms to begin."""


class Session:
    """An observer that runs beside a job that is not ours."""

    def __init__(
        self,
        root: Seen,
        trainers: dict[int, str],
        tier: Tier,
        run_dir: Path,
        *,
        shows: bool,
        is_live: bool = False,
        visited: Sequence[Seen] = (),
    ) -> None:
        """`shows`: whether the job's command line may be kept. `is_live`: somebody watches.

        `visited`: processes that hooks are put into, at T2.
        """
        self.run_dir = run_dir
        self.root, self.trainers, self.tier = root, trainers, tier
        age_ns = int(find_age_s(root) * 1e9)
        wall_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        words = list(root.words) if shows else []
        self._facts: dict[str, Any] = {
            **describe_run(words, None if shows else [], run_dir, Extent("whole")),
            "attached": {
                "pid": root.pid,
                "tier": tier,
                "since_wall_ns": wall_ns - age_ns,
            },
        }
        self._facts["blindspots"] = list(_UNSEEN[tier])
        self._observer: Popen[bytes] | None = None
        self._piece_s = LIVE_PIECE_S if is_live else None
        self._visited = visited
        self._visits = Visits(run_dir)

    def start(self) -> None:
        """Make the folder and start the observer; raises RefusedError if that is not possible."""
        problem = prepare_folder(self.run_dir, None, self._facts)
        if problem is not None:
            raise RefusedError(
                f"{problem}. Nothing was attached to; the job runs on untouched. "
                "`--run-dir DIR` records to another place."
            )
        trainers = ",".join(f"{pid}:{name}" for pid, name in self.trainers.items())
        words = ["--run-dir", str(self.run_dir.absolute()), "--root-pid", str(self.root.pid)]
        words += ["--trainers", trainers, "--tier", self.tier]
        words += [] if self._piece_s is None else ["--piece", str(self._piece_s)]
        command = own_python("fuelline.record.attach.observer", words)
        if self.tier == "T2":  # hooks say what the attached observer has to find out
            command = own_python("fuelline.record.observer", words[:4])
            problem = self._visits.begin(self._visited, threading.Event().wait)
            if problem:
                self._visits.end(threading.Event().wait)
                raise RefusedError(
                    f"No hooks could be put into process {self.root.pid}: {problem}. The job runs "
                    "on untouched. Without --hooks it is looked at from outside."
                )
        try:
            with os.fdopen(open_own(self.run_dir / "observer.log", os.O_WRONLY), "wb") as log:
                self._observer = Popen(
                    command,
                    stdin=DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=lambda: step_back(set()),  # noqa: PLW1509 - no threads here
                )
        except OSError as error:
            raise RefusedError(
                f"The observer does not start ({error.strerror}). Nothing was attached to; the job "
                "runs on untouched."
            ) from None

    @property
    def is_over(self) -> bool:
        """Whether the observer has left: the job has ended."""
        return self._observer is not None and self._observer.poll() is not None

    def stop(self) -> None:
        """Detach: the observer writes what it has, and the run is closed."""
        absent, staying = self._visits.list_absent(), self._visits.end(threading.Event().wait)
        for pids, why in ((absent, _NEVER_CAME), (staying, _STAYED)):
            if pids:
                names = ", ".join(map(str, pids[:8]))
                self._facts["blindspots"].append({"what": f"processes {names}", **why})
        code = stop_observer(self._observer, _GRACE_S)
        if code != 0:
            self._facts["blindspots"].append(explain_observer(code))
        write_facts(self.run_dir, {**self._facts, "ended_ns": time.monotonic_ns()})


def find_age_s(seen: Seen) -> float:
    """How long a process has been there."""
    started_ns = boot_ticks_ns() + seen.stat.start_ticks * NS_PER_TICK
    return max(0.0, (time.monotonic_ns() - started_ns) / 1e9)
