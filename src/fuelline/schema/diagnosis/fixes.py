"""What `fuelline run --fix` did to a running job, and what came of it. Part of `diagnose --json`.

Events are what the job wrote while it ran; LoaderFixes are what is said of them. New fields go last
with a default.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from fuelline.schema.diagnosis.trials import Trial  # noqa: TC001 - msgspec resolves it at run time
from fuelline.schema.run.run_folder import ALLOWED as ALLOWED  # noqa: PLC0414 - passed on
from fuelline.schema.run.run_folder import FIX_DIR as FIX_DIR  # noqa: PLC0414 - passed on
from fuelline.schema.run.run_folder import FIX_VARIABLE as FIX_VARIABLE  # noqa: PLC0414 - passed on

Outcome = Literal["kept", "rolled back", "cannot tell"]


class FixEvent(Struct, frozen=True, kw_only=True):
    """One line of the job's own account; fields that an event does not have keep their default."""

    event: str
    """served, left, change, trial, held, varies, lost, blocked, setting, end; of workers on other
    hosts: remote_ready, remote_left, remote_lost, remote_end."""
    at_ns: int = 0
    pid: int = 0
    number: int = 0
    """Of the loader in its process; `loader` is the same in older events, or its name."""
    loader: int | str = 0
    workers: int = 0
    prefetch: int | None = None
    most: int = 0
    active: int = 0
    window: int = 0
    was: tuple[int, int] | None = None
    """Active workers and window before."""
    why: str = ""
    before: list[float] = field(default_factory=list)
    """Batches a second, a stretch each; likewise after."""
    after: list[float] = field(default_factory=list)
    verdict: Outcome = "cannot tell"
    is_trial: bool = False
    is_varying: bool = False
    is_late: bool = False
    how: str = ""
    left: int = 0
    setting: str = ""
    batches: int | None = None
    """Taken from the loader's workers until it ended."""
    framework: str = ""
    """Of the source; empty: a DataLoader."""
    is_allowed: bool = False
    """The user lets workers change in mid-epoch though the dataset draws in them."""
    remote: int = 0
    """Workers on other hosts: given work after a change; ready; left at the end."""
    was_remote: int = 0
    predicted: float | None = None
    """Rate against that before the change, where the pipeline model was asked."""
    waited: float = 0.0
    """Share of the time that training waited, before a trial; `waits` in it, stretch by stretch."""
    waits: list[float] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    """Addresses of other hosts."""
    problems: list[str] = field(default_factory=list)
    """Why some workers there are not used."""
    fetch_s: float = 0.0
    """One batch there; its size, and what the line carries, next."""
    batch_bytes: float = 0.0
    bytes_per_s: float = 0.0
    seconds: float = 0.0
    """How long workers there were held."""
    core_price: float | None = None
    """USD for a core-hour there, as the user gave it."""


class Fix(Struct, frozen=True, kw_only=True):
    """One change to the running job."""

    why: str
    trial: Trial
    outcome: Outcome
    """kept: faster, and the interval says so. cannot tell: kept or undecided when the job ended."""


class Stretch(Struct, frozen=True, kw_only=True):
    """How the job went for a while."""

    seconds: float
    step_seconds: float | None
    """Mean."""
    wait_share: float | None
    """Of its time: waiting for input, at the start of epochs as well. Null for a few steps: those
    are fed by what workers had ready."""
    workers: int
    """Active, of the loader that feeds the steps."""
    samples_per_s: float | None = None


class BeforeAfter(Struct, frozen=True, kw_only=True):
    """The job before the first change of --fix, and as it is since the last one."""

    before: Stretch
    after: Stretch
    is_judged_after: bool = True
    """Whether budget, findings and verdict are of the job since the last change that held; if it
    ended too soon for that, they are of the longest stretch under one setting."""


class RemoteUse(Struct, frozen=True, kw_only=True):
    """What other hosts did for a loader."""

    workers: int
    """Each holds a core there."""
    hosts: list[str]
    batches: int | None = None
    """Prepared there; null if the job was killed."""
    held_seconds: float | None = None
    usd_per_core_hour: float | None = None
    speedup: float | None = None
    """Of the job, as the trial that was kept measured it."""


class LoaderFixes(Struct, frozen=True, kw_only=True):
    """One loader of one process."""

    loader: str
    pid: int
    workers: int
    """The job's own setting."""
    workers_at_end: int | None = None
    """Active when the job ended; null if it was killed."""
    fixes: list[Fix] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was not done, and why; workers that were lost."""
    framework: str = ""
    """Of the source; empty: a DataLoader. Workers of tf.data are the threads of its pool."""
    remote: RemoteUse | None = None
    """Workers on other hosts; null if there were none."""
