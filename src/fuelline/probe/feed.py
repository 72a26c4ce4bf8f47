"""Takes over at the training loader's first iteration and drives that loader alone.

The plan, a JSON file: {"folder": ..., "seconds": 15.0, "step_ns": null, "samples_per_s": null,
"loader": null}. Which loader trains: a shuffled or iterable one that is iterated with gradients on
is taken at once; one in fixed order only when `backward` proves that it trains. Then no line of the
script runs any more: its frames are not unwound, so that no `finally` of it can write a checkpoint
of a model that was never trained. Exit functions run, workers end, the exit code is 0. Standard
library and torch only.

Also here: ends the job from inside, at once and in order: exit functions run, no child stays
behind.

The script's frames are left as they are; none of its `except` or `finally` runs. Exit functions
(those of `tempfile`, `logging`, `multiprocessing` among them) do. A process that `multiprocessing`
started has only that library's; its parent, whose script would go on without a trained model, is
ended with it.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from multiprocessing import util
from time import monotonic_ns, sleep  # noqa: TID251 - the emulated accelerator takes its time
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.utils.data import dataloader, get_worker_info

from fuelline.schema.seams import find_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


__all__ = ["install"]

PARTS: tuple[str, ...] = (
    "torch.utils.data.dataloader:_MultiProcessingDataLoaderIter._shutdown_workers",
)
"""All that is used of torch without a promise that it stays; looked up before a loader is taken."""
LONGEST_WAIT = 4
"""A loader too slow for its warm-up is given up as many times the asked seconds after its start."""
PATIENCE = 20
"""Backward passes without a loader of ours before it counts as training without one."""
_MOST_FRAMES = 3


def install(plan_path: str) -> Takeover:
    """Wait for the training loader in this process; the caller reports backward passes."""
    with open(plan_path, encoding="utf-8") as file:  # noqa: PTH123
        plan = json.load(file)
    owner = dataloader.DataLoader
    takeover = Takeover(plan, owner.__iter__)
    missing = find_missing(PARTS)
    if missing:
        takeover.give_up(missing)
    owner.__iter__ = takeover.start
    return takeover


class Takeover:
    """Chooses the loader, drives it, writes down the result, and ends the process."""

    def __init__(self, plan: dict[str, Any], original: Callable[[Any], Iterator[Any]]) -> None:
        self._plan = plan
        self._original = original
        self._seen: list[tuple[Any, dict[str, Any]]] = []
        self._unproven: tuple[Any, Any] | None = None
        self._is_driving = False
        self._passes = 0
        self.is_made = False
        """Whether the job has made a loader."""
        self.start = self._make_start()

    def _make_start(self) -> Callable[[Any], Any]:
        """What stands in the place of `DataLoader.__iter__`; a function, so that it binds."""

        def start(loader: Any) -> Any:
            if self._is_driving or get_worker_info() is not None:
                return self._original(loader)
            number = self._see(loader)
            if self._is_wanted(loader, number):
                self._drive(loader)
            iterator = self._original(loader)
            if torch.is_grad_enabled():
                self._unproven = (loader, iterator)
            return iterator

        return start

    def prove(self) -> None:
        """A backward pass: whatever loader was iterated last with gradients is the training's."""
        if self._is_driving or self._plan["loader"] is not None:
            return
        if self._unproven is None:
            self._passes += 1
            if self.is_made and self._passes < PATIENCE:
                return  # perhaps a warm-up: a loader was made, and may be iterated yet
            self.give_up("it trains without a torch DataLoader that can be used")
        loader, iterator = self._unproven
        _end_workers(iterator)
        self._drive(loader)

    def give_up(self, problem: str) -> NoReturn:
        """End the job, which has no loader that can be driven."""
        self._write_account({"problem": problem})
        leave_job(self._others_drive)

    def _see(self, loader: Any) -> int:
        for number, (known, _) in enumerate(self._seen, start=1):
            if known is loader:
                return number
        self._seen.append((loader, {**_describe(loader), "grad": torch.is_grad_enabled()}))
        self._write_account({})
        return len(self._seen)

    def _is_wanted(self, loader: Any, number: int) -> bool:
        if self._plan["loader"] is not None:
            return bool(number == self._plan["loader"])
        return torch.is_grad_enabled() and _is_random(loader)

    def _drive(self, loader: Any) -> None:
        self._is_driving = True
        drive = Drive(self._plan, loader, self._original)
        number = self._see(loader)
        self._write_account({"driving": True})
        problem = None
        try:
            drive.run()
        except KeyboardInterrupt:
            problem = "KeyboardInterrupt"
        except BaseException as failure:  # noqa: BLE001 - the loader's own failure is the answer
            problem = _tell_failure(failure)
        self._write_account({"number": number, "problem": problem, **drive.account()})
        leave_job(self._others_drive)

    def _others_drive(self) -> bool:
        """Whether another process of the job is still at it."""
        folder = self._plan["folder"]
        for name in os.listdir(folder):  # noqa: PTH208
            if name.startswith("feed-") and name.endswith(".json"):
                with open(f"{folder}/{name}", encoding="utf-8") as file:  # noqa: PTH123
                    if json.load(file).get("driving"):
                        return True
        return False

    def _write_account(self, account: dict[str, Any]) -> None:
        path = f"{self._plan['folder']}/feed-{os.getpid()}.json"
        found = {"pid": os.getpid(), "seen": [each for _, each in self._seen], **account}
        with open(f"{path}.partial", "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(found, file)
        os.replace(f"{path}.partial", path)  # noqa: PTH105


class Drive:
    """The loop in the place of the training loop: takes batches, and lets a device take its time.

    As in MLPerf Storage the next batch is asked for when the device is done with the last.
    """

    def __init__(
        self, plan: dict[str, Any], loader: Any, original: Callable[[Any], Iterator[Any]]
    ) -> None:
        self._seconds = float(plan["seconds"])
        self._step_ns: int | None = plan["step_ns"]
        self._samples_per_s: float | None = plan["samples_per_s"]
        self._loader = loader
        self._original = original
        self._queue = (loader.num_workers or 0) * (loader.prefetch_factor or 2)
        self._begun_ns = self._counted_ns = 0
        self._asked_ns = 0
        """When the device was ready for more; ending and beginning an epoch is part of a wait."""
        self._warm = 0
        self._epochs = 0
        self._iterator: Any = None
        self.waits: list[int] = []
        self.works: list[int] = []
        self.samples: list[int] = []

    def run(self) -> None:
        """Until the asked time is over; epochs begin again as often as needed."""
        self._begun_ns = self._asked_ns = monotonic_ns()
        try:
            while self._run_epoch():
                self._epochs += 1
        finally:
            _end_workers(self._iterator)

    def _run_epoch(self) -> bool:
        """One pass; False when it is time to stop."""
        taken = 0
        self._iterator = self._original(self._loader)
        for batch in self._iterator:
            self.waits.append(monotonic_ns() - self._asked_ns)
            self.samples.append(_count_samples(batch, self._loader, taken))
            taken += 1
            self._asked_ns = self._work(self.samples[-1])
            if self._is_over(self._asked_ns):
                return False
        if not taken:
            raise ValueError("the loader returned no batch")
        return True

    def _work(self, samples: int) -> int:
        """Let the device take its time; what it took counts, not what it should have taken."""
        start_ns = now_ns = monotonic_ns()
        step_ns = self._step_ns
        if self._samples_per_s is not None:
            step_ns = int(samples / self._samples_per_s * 1e9)
        if step_ns is not None:
            sleep(step_ns / 1e9)
            now_ns = monotonic_ns()
        self.works.append(now_ns - start_ns)
        return now_ns

    def _is_over(self, now_ns: int) -> bool:
        """Whether enough was measured after the queue of prefetched batches was level."""
        elapsed_s = (now_ns - self._begun_ns) / 1e9
        if not self._counted_ns:
            if len(self.waits) > self._queue or elapsed_s > self._seconds:
                self._counted_ns, self._warm = now_ns, len(self.waits)
            return False
        if elapsed_s > LONGEST_WAIT * self._seconds:
            return True
        return now_ns - self._counted_ns >= self._seconds * 1e9

    def account(self) -> dict[str, Any]:
        """What was measured, batch by batch; the first `warm` batches do not count."""
        return {
            "waits_ns": self.waits,
            "works_ns": self.works,
            "samples": self.samples,
            "warm": self._warm,
            "epochs": self._epochs,
        }


def _describe(loader: Any) -> dict[str, Any]:
    return {
        "dataset": type(loader.dataset).__qualname__,
        "sampler": type(getattr(loader, "sampler", None)).__qualname__,
        "batch_size": loader.batch_size if type(loader.batch_size) is int else None,
        "workers": loader.num_workers,
        "random": _is_random(loader),
    }


def _is_random(loader: Any) -> bool:
    """Whether samples come in another order than that of a plain pass, as for training."""
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return True
    sampler = loader.sampler
    if isinstance(sampler, torch.utils.data.distributed.DistributedSampler):
        return bool(sampler.shuffle)
    if loader.batch_size is None and loader.batch_sampler is not None:
        return True  # a batch sampler of the job's own
    return not isinstance(sampler, torch.utils.data.SequentialSampler)


def _count_samples(batch: Any, loader: Any, position: int) -> int:
    """Samples of a batch; from the sampler where it has them, else the first tensor's length."""
    size = loader.batch_size
    if type(size) is int and loader.batch_sampler is not None:
        try:
            left = len(loader.sampler) - position * size
        except TypeError:
            return size
        return max(1, min(size, left))
    return _first_length(batch) or (size if type(size) is int else 1)


def _first_length(batch: Any) -> int | None:
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.dim() else 1
    parts = batch.values() if isinstance(batch, dict) else batch
    if isinstance(batch, dict | list | tuple):
        return next((found for part in parts if (found := _first_length(part))), None)
    return None


def _end_workers(iterator: Any) -> None:
    shut_down = getattr(iterator, "_shutdown_workers", None)
    if shut_down is not None:
        shut_down()


def _tell_failure(failure: BaseException) -> str:
    """The error and the innermost lines of the job that led to it."""
    lines = [
        f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(failure.__traceback__)
    ]
    ours = os.path.dirname(__file__)  # noqa: PTH120
    outside = [line for line in lines if not line.startswith(ours)][-_MOST_FRAMES:]
    words = str(failure).strip().splitlines()
    return f"{type(failure).__name__}: {words[-1] if words else ''} ({', '.join(outside)})"


GRACE_S = 5.0
"""Exit functions of the job may take this long; a hanging one must not keep the user waiting."""


def leave_job(others_drive: Callable[[], bool]) -> NoReturn:
    """Does not return; a process that `multiprocessing` started also ends its parent, at the last.

    `others_drive` says whether other processes of the job still need that parent.
    """
    threading.Thread(target=_leave_later, daemon=True).start()
    try:
        for child in multiprocessing.active_children():
            child.terminate()
        parent = multiprocessing.parent_process()
        if parent is None:
            atexit._run_exitfuncs()  # noqa: SLF001 - Python has no other way to run them
        else:
            util._exit_function()  # type: ignore[attr-defined]  # noqa: SLF001 - likewise
            if not others_drive() and parent.pid is not None:
                os.kill(parent.pid, signal.SIGTERM)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _leave_later() -> None:
    threading.Event().wait(GRACE_S)
    os._exit(0)
