"""Tries loader settings inside the user's own loop: one loader, several settings, in turns.

The first loader that is iterated with gradients on is taken over: the loop gets batches from copies
of it, each with other settings, for some seconds each, round after round. Then the results are
written and the script ends by SystemExit. Same data set, sampler and collate function; the model
trains on what it gets, so that the device's time is part of what is measured. Standard library and
torch only.

All settings get their first turn; those of later rounds are left out when the budget is used up.

The plan: {"result": path, "seconds": 3.0, "rounds": 2, "budget_s": 40.0, "turns": [{}, ...]}
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
from torch.utils.data import dataloader, get_worker_info

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
LONGEST_SETTLE_S = 6.0
"""Slow batches must not settle for ever."""
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
        self.taken: tuple[Any, _Turns] | None = None
        """The loader that was taken over, and what its loop gets."""
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
            return stage.taken[1]  # a loop that was left early and begins again
        if stage.taken or not torch.is_grad_enabled() or get_worker_info() is not None:
            return stage.original(self)
        stage.taken = (self, _Turns(stage, self))
        return stage.taken[1]

    loader.__init__ = init
    loader.__iter__ = start


def _caller() -> str:
    """The nearest line outside of torch and of ourselves."""
    frame = sys._getframe(2)  # noqa: SLF001 - Python's own, and quicker than `inspect`
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_TORCH):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


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
            turn = _Turn(self._loader, plan["turns"][position], self._stage.original)
            try:
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
        if self._stage.is_over:
            return
        self._stage.is_over = True
        result = {
            "turns": self._accounts,
            "seconds": monotonic() - self._begun_s,
            "problem": problem,
            "site": self._stage.sites.get(id(self._loader), ""),
            "settings": _settings(self._loader),
            "loader": type(self._loader).__qualname__,
            "accelerator": _accelerator(),
        }
        path = self._stage.plan["result"]
        with open(f"{path}.partial", "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(result, file)
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


def _accelerator() -> bool:
    return bool(torch.cuda.is_available())


def _settings(loader: Any) -> dict[str, Any]:
    names = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "batch_size")
    return {name: getattr(loader, name, None) for name in names}


class _Turn:
    """One setting for some seconds."""

    def __init__(
        self, loader: Any, changes: dict[str, Any], original: Callable[[Any], Iterator[Any]]
    ) -> None:
        self._loader = _changed(loader, changes)
        self._original = original
        self._iterator: Any = None
        self._blocks: list[float] = []
        self.problem: str | None = None

    def play(self, seconds: float) -> Iterator[Any]:
        """Give out batches until the turn is over; epochs begin again as often as needed."""
        queue = (self._loader.num_workers or 0) * (self._loader.prefetch_factor or 2)
        begun, taken, start = monotonic(), 0, 0.0
        marks: list[tuple[float, int]] = []
        while True:
            self._iterator = _start(self._original, self._loader)
            before = taken
            for batch in self._iterator:
                yield batch
                taken += 1
                now = monotonic()
                settled = now - begun > SETTLE_S and taken > queue
                if not start and (settled or now - begun > LONGEST_SETTLE_S):
                    start = now
                    marks = [(now, taken)]
                elif start:
                    marks.append((now, taken))
                    if now - start >= seconds and len(marks) > BLOCKS:
                        self._blocks = _rates(marks)
                        return
            if taken == before:
                raise ValueError("the loader returned no batch")

    def account(self) -> dict[str, Any]:
        """Batches per second of each part of the turn."""
        return {"rates": self._blocks, "problem": self.problem}

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
    own["persistent_workers"] = False  # a turn starts and ends its own workers
    return twin


def _rates(marks: list[tuple[float, int]]) -> list[float]:
    """Batches per second in equal numbers of batches."""
    edges = [round(at * (len(marks) - 1) / BLOCKS) for at in range(BLOCKS + 1)]
    pairs = [(marks[a], marks[b]) for a, b in itertools.pairwise(edges) if b > a]
    return [(last[1] - first[1]) / max(last[0] - first[0], 1e-9) for first, last in pairs]
