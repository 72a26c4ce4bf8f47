"""Tries loader settings inside the user's own loop: one loader, several settings, in turns.

The first loader that is iterated with gradients on is taken over: the loop gets batches from copies
of it, each with other settings, for some seconds each, round after round. Then the results are
written and the script ends by SystemExit. Same data set, sampler and collate function; the model
trains on what it gets, so that the device's time is part of what is measured. Standard library and
torch only.

All settings get their first turn; those of later rounds are left out when the budget is used up.

What is measured is batches per second of a whole epoch, the start of its workers included. Where
epochs are shorter than a turn, whole ones are timed. Otherwise it is the rate of batches that were
all asked for after the turn had settled, so that none was prefetched before, and what starting took
is spread over the epoch. Workers that stay start once in the job.

The plan: {"result": path, "seconds": 3.0, "rounds": 2, "budget_s": 40.0, "turns": [{}, ...],
"job_batches": 1200}; with "is_natural" the job runs as it is for the seconds, epochs and all.
"""

from __future__ import annotations

import atexit
import copy
import itertools
import json
import os
import sys
import warnings
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset, dataloader, get_worker_info

from fuelline.schema.seams import find_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["install"]

PARTS: tuple[str, ...] = (
    "torch.utils.data.dataloader:_MultiProcessingDataLoaderIter._shutdown_workers",
    "torch.utils.data.dataloader:DataLoader#_iterator",
)
"""All that trials use of torch without a promise that it stays; looked up before the first one."""
BLOCKS = 4
"""Each turn is measured in so many parts: their spread is the doubt of its mean."""
SETTLE_S = 0.7
"""After this and a whole queue of batches a turn counts: workers run and the queue is level."""
LONGEST_TURN_S = 12.0
"""Beyond its seconds: a queue of slow batches that takes longer to pass gives no answer."""
_SOME_EPOCHS = 1
"""A job that began more of them within its recording has short ones."""
_TORCH = os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))  # noqa: PTH100, PTH120


class TrialOver(SystemExit):
    """Ends the script as `sys.exit()` would."""


class _Stage:
    """What is known of the trial in this process; one loader is taken over, the others are not."""

    def __init__(self, plan: dict[str, Any], original: Callable[[Any], Iterator[Any]]) -> None:
        self.plan = plan
        self.original = original
        self.missing = find_missing(PARTS)
        """Looked up while the loader's methods are torch's own, which use what is asked for."""
        self.taken: tuple[Any, _Turns | _PlainJob] | None = None
        """The loader that was taken over, and what gives its loop batches."""
        self.is_over = False
        self.sites: dict[int, str] = {}
        """Loader to `file:line` of the call that made it."""


def install(plan_path: str) -> None:
    """Put the trial in the loader's place."""
    with open(plan_path, encoding="utf-8") as file:  # noqa: PTH123
        plan = json.load(file)
    loader = dataloader.DataLoader
    stage = _Stage(plan, loader.__iter__)
    made = loader.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        stage.sites[id(self)] = _caller()

    def start(self: Any) -> Any:
        if stage.is_over:
            raise TrialOver(0)
        if stage.taken is not None and stage.taken[0] is self:
            return stage.taken[1].begin()  # its next epoch, or a loop that was left early
        if stage.taken or not torch.is_grad_enabled() or get_worker_info() is not None:
            return stage.original(self)
        kind = _PlainJob if plan.get("is_natural") else _Turns
        stage.taken = (self, kind(stage, self))
        return stage.taken[1].begin()

    loader.__init__ = init
    loader.__iter__ = start


def _caller() -> str:
    """The nearest line outside of torch and of ourselves."""
    frame = sys._getframe(2)  # noqa: SLF001 - Python's own, and quicker than `inspect`
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_TORCH):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class _PlainJob:
    """The job as it is, for some seconds: its own epochs, and its own end if that comes first."""

    def __init__(self, stage: _Stage, loader: Any) -> None:
        self._stage = stage
        self._loader = loader
        self._begun_s = monotonic()
        self._batches = self._epochs = 0
        atexit.register(self._finish, is_whole=True)

    def begin(self) -> _Epoch:
        """Another epoch."""
        self._epochs += 1
        return _Epoch(self, _start(self._stage.original, self._loader))

    def count(self) -> None:
        """A batch was taken."""
        self._batches += 1
        # With short epochs the start of workers matters, and so does how many of them there are.
        longest_s = self._stage.plan["seconds"] * (2 if self._epochs > _SOME_EPOCHS else 1)
        if monotonic() - self._begun_s > longest_s:
            self._finish(is_whole=False)
            raise TrialOver(0)

    def _finish(self, *, is_whole: bool) -> None:
        passed_s = max(monotonic() - self._begun_s, 1e-9)
        turn = {"turn": 0, "round": 0, "rates": [self._batches / passed_s], "problem": None}
        account = {"turns": [turn] if self._batches else [], "seconds": passed_s}
        problem = self._stage.missing or _refusal()
        _write(self._stage, self._loader, account, problem, self._batches if is_whole else None)


class _Epoch:
    """One epoch of the job as it is."""

    def __init__(self, job: _PlainJob, batches: Any) -> None:
        self._job = job
        self._batches = batches

    def __iter__(self) -> _Epoch:
        return self

    def __len__(self) -> int:
        return len(self._batches)

    def __next__(self) -> Any:
        batch = next(self._batches)
        self._job.count()
        return batch


class _Turns:
    """The iterator that the user's loop gets."""

    def __init__(self, stage: _Stage, loader: Any) -> None:
        self._stage = stage
        self._loader = loader
        self._begun_s = monotonic()
        self._longest_s = 0.0
        """Of the turns so far; the next one may take as long."""
        self._accounts: list[dict[str, Any]] = []
        self._batches = self._play()
        atexit.register(self._finish, None)  # a loop that ends by itself has shown something, too

    def begin(self) -> _Turns:
        """Turns go on from epoch to epoch."""
        return self

    def __iter__(self) -> _Turns:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        if self._stage.is_over:
            raise TrialOver(0)
        return next(self._batches)

    def _play(self) -> Iterator[Any]:
        plan = self._stage.plan
        problem = self._stage.missing or _refusal()
        for number, position in () if problem else _order(plan):
            begun_s = monotonic()
            if number and begun_s - self._begun_s + self._longest_s > plan["budget_s"]:
                break
            _tell(plan, number, position)
            turn = _Turn(self._loader, plan, position, self._stage.original)
            turn.problem = _objection(self._loader, plan["turns"][position])
            try:
                if turn.problem is None:
                    yield from turn.play(plan["seconds"])
            except (RuntimeError, OSError, ValueError) as failure:
                turn.problem = f"{type(failure).__name__}: {failure}"
            finally:
                turn.close()
            self._accounts.append({"turn": position, "round": number, **turn.account()})
            self._longest_s = max(self._longest_s, monotonic() - begun_s)
        self._finish(problem)
        raise TrialOver(0)

    def _finish(self, problem: str | None) -> None:
        account = {"turns": self._accounts, "seconds": monotonic() - self._begun_s}
        _write(self._stage, self._loader, account, problem, None)


def _write(
    stage: _Stage,
    loader: Any,
    account: dict[str, Any],
    problem: str | None,
    job_batches: int | None,
) -> None:
    """The result, once; `job_batches` if the loop came to its own end."""
    if stage.is_over:
        return
    stage.is_over = True
    result = {
        **account,
        "problem": problem,
        "site": stage.sites.get(id(loader), ""),
        "settings": _settings(loader),
        "loader": type(loader).__qualname__,
        "accelerator": _accelerator(),
        "job_batches": job_batches,
    }
    _replace(stage.plan["result"], result)


def _tell(plan: dict[str, Any], number: int, position: int) -> None:
    """Which turn begins, for whoever waits for the answer."""
    _replace(f"{plan['result']}.progress", {"round": number, "turn": position})


def _replace(path: str, content: dict[str, Any]) -> None:
    with open(f"{path}.partial", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(content, file)
    os.replace(f"{path}.partial", path)  # noqa: PTH105


def _order(plan: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """Round and place of each turn; every other round backwards: what drifts meets all alike."""
    for number in range(plan["rounds"]):
        places = range(len(plan["turns"]))
        yield from ((number, at) for at in (places if number % 2 == 0 else reversed(places)))


def _refusal() -> str | None:
    """Ranks must take as many batches as each other, which turns by the clock do not."""
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        ranks = distributed.get_world_size()
        words = f"{ranks} ranks train together, and trials timed by the clock would separate them"
        return words if ranks > 1 else None
    return None


def _objection(loader: Any, changes: dict[str, Any]) -> str | None:
    """Why one setting is not tried: samples that come twice would count as speed."""
    if changes.get("num_workers", loader.num_workers) == loader.num_workers:
        return None
    if not isinstance(loader.dataset, IterableDataset):
        return None
    return (
        "its dataset is iterable: with another number of workers samples may come several times, "
        "which would look like speed"
    )


def _accelerator() -> bool:
    return bool(torch.cuda.is_available())


def _settings(loader: Any) -> dict[str, Any]:
    names = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "batch_size")
    return {name: getattr(loader, name, None) for name in names}


class _Turn:
    """One setting for some seconds."""

    def __init__(
        self,
        loader: Any,
        plan: dict[str, Any],
        position: int,
        original: Callable[[Any], Iterator[Any]],
    ) -> None:
        changes = plan["turns"][position]
        own = getattr(loader, "persistent_workers", False)
        self._stays = bool(changes.get("persistent_workers", own))
        self._job_batches: int | None = plan.get("job_batches")
        self._loader = _changed(loader, changes)
        self._original = original
        self._iterator: Any = None
        self._rates: list[float] = []
        self.problem: str | None = None

    def play(self, seconds: float) -> Iterator[Any]:
        """Give out batches until the turn is over; epochs begin again as often as needed."""
        begun_s = monotonic()
        epochs: list[tuple[int, float]] = []
        while True:
            epoch = _TimedEpoch(self._loader)
            self._iterator = _start(self._original, self._loader)
            epoch.start_s = monotonic() - epoch.begun_s
            for batch in self._iterator:
                epoch.take()
                yield batch
                if epoch.is_measured(seconds):
                    self._rates = [self._whole(rate, epoch) for rate in epoch.rates()]
                    return
                if monotonic() - begun_s > seconds + LONGEST_TURN_S:
                    self._rates = self._of_epochs(epochs)
                    if not self._rates:
                        self.problem = f"too few batches in {monotonic() - begun_s:.0f} s to judge"
                    return
            if not epoch.taken:
                raise ValueError("the loader returned no batch")
            epochs.append((epoch.taken, monotonic() - epoch.begun_s))
            self._rates = self._of_epochs(epochs)
            if monotonic() - begun_s > seconds and self._rates:
                return

    def _of_epochs(self, epochs: list[tuple[int, float]]) -> list[float]:
        """Batches per second of whole epochs, two at least.

        Workers that stay start in the first one, which is not like the others: what it took longer
        counts once in the job.
        """
        rest = epochs[1:] if self._stays else epochs
        if len(rest) < 2:
            return []
        if not self._stays:
            return [taken / passed_s for taken, passed_s in rest]
        usual_s = sum(passed_s for _, passed_s in rest) / len(rest)
        once_s = max(0.0, epochs[0][1] - usual_s)
        return [
            self._spread(taken / passed_s, once_s, self._job_batches) for taken, passed_s in rest
        ]

    def _whole(self, rate: float, epoch: _TimedEpoch) -> float:
        """The rate of an epoch that is longer than the turn, its start included."""
        length = _count_batches(self._loader)
        rate = self._spread(rate, epoch.fill_s, length)
        return self._spread(rate, epoch.start_s, self._job_batches if self._stays else length)

    def _spread(self, rate: float, once_s: float, batches: int | None) -> float:
        return rate if not batches else float(1 / (1 / rate + once_s / batches))

    def account(self) -> dict[str, Any]:
        """Batches per second of each part of the turn."""
        return {"rates": self._rates, "problem": self.problem}

    def close(self) -> None:
        """End the workers of this turn before the next one starts its own."""
        iterator, self._iterator = self._iterator, None
        shut_down = getattr(iterator, "_shutdown_workers", None)
        if shut_down is not None:
            shut_down()


def _start(original: Callable[[Any], Iterator[Any]], loader: Any) -> Iterator[Any]:
    """Without torch's advice on the number of workers: finding that out is what this is for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*worker processes in total")
        return original(loader)


def _changed(loader: Any, changes: dict[str, Any]) -> Any:
    """A copy with other settings; what torch would refuse together is left out."""
    twin = copy.copy(loader)
    own = twin.__dict__
    own.update(changes)
    own["_iterator"] = None
    if not own["num_workers"]:
        own["prefetch_factor"], own["persistent_workers"] = None, False
    elif own.get("prefetch_factor") is None:
        own["prefetch_factor"] = 2
    return twin


def _count_batches(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None  # a stream


class _TimedEpoch:
    """When its batches came, and which of them were asked for after it had settled."""

    def __init__(self, loader: Any) -> None:
        self._queue = (loader.num_workers or 0) * (loader.prefetch_factor or 2)
        self.begun_s = monotonic()
        self.start_s = 0.0
        """To start its workers."""
        self.fill_s = 0.0
        """From then on to its first batch."""
        self.taken = 0
        self._counts_from: int | None = None
        self._marks: list[tuple[float, int]] = []

    def take(self) -> None:
        """A batch is there."""
        now_s = monotonic()
        self.taken += 1
        if self.taken == 1:
            self.fill_s = now_s - self.begun_s - self.start_s
        if self._counts_from is None and now_s - self.begun_s > SETTLE_S:
            self._counts_from = self.taken + self._queue  # as many were under way already
        if self._counts_from is not None and self.taken >= self._counts_from:
            self._marks.append((now_s, self.taken))

    def is_measured(self, seconds: float) -> bool:
        """Whether enough of what was asked for since then is there.

        As many batches as are under way at least: those of one round may all come at once.
        """
        if len(self._marks) <= max(BLOCKS, self._queue):
            return False
        return self._marks[-1][0] - self._marks[0][0] >= seconds

    def rates(self) -> list[float]:
        """Batches per second in equal numbers of batches."""
        marks = self._marks
        edges = [round(at * (len(marks) - 1) / BLOCKS) for at in range(BLOCKS + 1)]
        pairs = [(marks[a], marks[b]) for a, b in itertools.pairwise(edges) if b > a]
        return [(last[1] - first[1]) / max(last[0] - first[0], 1e-9) for first, last in pairs]
