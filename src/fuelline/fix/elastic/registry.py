"""Which loaders are served, which are left alone and why; the way in for `fuelline run --fix`.

`DataLoader._get_iterator` is the one thing that is replaced (entry). A loader that cannot be served
gets the iterator that it would get without us. If ours cannot be built, the random stream is put
back where it was and torch's own is built instead.

Also here: whether more indices may be drawn ahead from a sampler than the job's own loader would
draw.

A sampler that draws from a random stream which the training shares, or that looks at how the
training goes, gives other indices when it is asked earlier. Only samplers of torch that draw from a
generator of their own, or all at once when they are started, may be asked ahead; others keep the
number of batches under way that they have without us.
"""

from __future__ import annotations

import atexit
import itertools
import multiprocessing
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import distributed, get_worker_info, sampler

from fuelline.fix.elastic import seam
from fuelline.fix.elastic.controller import LoaderController, LoaderHistory, LoaderRules
from fuelline.fix.elastic.governor import DEEPEST
from fuelline.fix.elastic.host import HostBudget, open_host
from fuelline.fix.elastic.inline import InlineController, watch_inline
from fuelline.fix.elastic.iterator import build
from fuelline.fix.elastic.journal import FixJournal
from fuelline.fix.elastic.observation import TurnLimits
from fuelline.fix.elastic.purity import owns_generator
from fuelline.fix.elastic.resources import count_cores, count_local_ranks, find_free_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from fuelline.fix.elastic.reach import OtherHosts

    CrewMaker = Callable[[int, FixJournal], OtherHosts]
    """From a loader's number and the journal."""

__all__ = ["LoaderRegistry", "open_registry"]

MOST_SPARE = 16
"""Parked workers of one loader: each takes 15 ms to start, once (measured on 2 cores)."""
MOST_DATASETS = 64
"""Remembered: a job has a few, or makes them by the thousand and then none is met again."""
LEAST_FREE_BYTES = 1 << 30
"""With less memory than this left no spare worker is started."""
_ITERABLE = seam.DatasetKind.Iterable
_DATAPIPES = (seam.IterDataPipe, seam.MapDataPipe)


def open_registry(folder: str, allowed: str, crews: CrewMaker | None = None) -> LoaderRegistry:
    """A registry for this process; `allowed` are the words of --allow, with commas."""
    registry = LoaderRegistry(FixJournal(folder), frozenset(allowed.split(",")), open_host(), crews)
    atexit.register(registry.close)
    return registry


class LoaderRegistry:
    """Knows the loaders of this process, none of which it touches or keeps alive."""

    def __init__(
        self,
        journal: FixJournal,
        allowed: frozenset[str],
        host: HostBudget | None = None,
        crews: CrewMaker | None = None,
    ) -> None:
        self._journal = journal
        self._host = host
        self._crews = crews
        self._allowed = allowed
        self._controllers: dict[int, Any] = {}
        self._refs: dict[int, weakref.ref[Any]] = {}
        self._pasts: dict[tuple[Any, ...], LoaderHistory] = {}
        self._datasets: dict[int, tuple[weakref.ref[Any], tuple[Any, ...], LoaderController]] = {}
        self._open: list[LoaderController] = []
        """Also of loaders that are gone: `for batch in DataLoader(...)` keeps the iterator only."""
        self._fresh = itertools.count(1).__next__

    def serve(self, loader: Any, original: Callable[[Any], Any]) -> Any:
        """An iterator for the loader."""
        controller = self._choose(loader)
        if isinstance(controller, InlineController):
            return watch_inline(loader, controller)
        if controller is None:
            return original(loader)
        controller.take_up()
        generator = loader.generator or torch.default_generator
        state = generator.get_state()
        loader.check_worker_number_rationality()
        try:
            return build(loader, controller)
        except Exception as failure:  # noqa: BLE001 - the guard: torch's own iterator raises or works
            generator.set_state(state)
            self._leave(loader, f"{type(failure).__name__}: {failure}")
            return original(loader)

    def _choose(self, loader: Any) -> LoaderController | InlineController | None:
        """Who serves the loader in its next epoch; None for torch alone."""
        if get_worker_info() is not None:
            return None
        try:
            controller = self._find(loader)
        except Exception as failure:  # noqa: BLE001 - the guard: a loader unlike any that we know
            self._leave(loader, f"{type(failure).__name__}: {failure}")
            return None
        if isinstance(controller, InlineController):
            if not controller.active:
                return None if controller.is_done else controller
            controller = controller.controller
        is_fit = controller is not None and controller.is_for(
            loader.num_workers, loader.prefetch_factor
        )
        return controller if is_fit else None

    def leave_stateful(self, loader: Any) -> None:
        """Torchdata's loader resumes in mid-epoch by its workers' own state."""
        if self._controllers.get(id(loader), self) is self:
            self._remember(loader)
            self._leave(loader, "a StatefulDataLoader keeps state in each worker")

    def close(self) -> None:
        """The job ends."""
        for controller in self._open:
            controller.close()
        if self._host is not None:
            self._host.close()

    def _find(self, loader: Any) -> Any:
        key = id(loader)
        if key not in self._controllers:
            self._controllers[key] = self._admit(loader)
            self._remember(loader)
        return self._controllers[key]

    def _remember(self, loader: Any) -> None:
        key = id(loader)
        self._refs[key] = weakref.ref(loader, lambda _: self._drop(key))

    def _drop(self, key: int) -> None:
        controller = self._controllers.pop(key, None)
        self._refs.pop(key, None)
        if controller is not None:
            controller.leave()

    def _leave(self, loader: Any, why: str) -> None:
        self._controllers[id(loader)] = None
        self._tell_left(loader, why)

    def _tell_left(self, loader: Any, why: str) -> None:
        """In the journal, and to the host: its workers need cores as well."""
        self._journal.write("left", loader=_describe(loader), why=why)
        if self._host is not None and loader.num_workers:
            self._host.reserve(loader.num_workers)

    def _admit(self, loader: Any) -> LoaderController | InlineController | None:
        """A controller, or None with a word in the journal."""
        why = _refusal(loader, self._allowed)
        if why is not None:
            self._tell_left(loader, why)
            return None
        kind = (_describe(loader), loader.num_workers, loader.prefetch_factor, loader.batch_size)
        known = self._datasets.get(id(loader.dataset))
        if known is not None and known[0]() is loader.dataset and known[1] == kind:
            return known[2]
        number = self._fresh()
        limits, rules = self._measure(loader)
        self._journal.write(
            "served",
            number=number,
            loader=_describe(loader),
            workers=loader.num_workers,
            prefetch=loader.prefetch_factor,
            most=limits.most,
            is_varying=rules.is_varying,
            is_allowed=rules.allow_random,
        )
        may_leave = not (rules.is_stream or rules.is_varying) and limits.most > limits.base
        crew = self._crews(number, self._journal) if self._crews and may_leave else None
        past = self._pasts.setdefault(kind, LoaderHistory())
        controller = LoaderController(
            number, limits, rules, self._journal, past, host=self._host, crew=crew
        )
        self._open = [*(each for each in self._open if not each.is_closed), controller]
        if not loader.num_workers:
            return InlineController(controller, loader)
        self._keep_for(loader.dataset, kind, controller)
        return controller

    def _keep_for(self, dataset: Any, kind: tuple[Any, ...], controller: LoaderController) -> None:
        """Jobs that make a new loader for each epoch give it the same dataset."""
        try:
            self._datasets[id(dataset)] = (weakref.ref(dataset), kind, controller)
        except TypeError:
            return  # a list or the like
        if len(self._datasets) > MOST_DATASETS:
            self._datasets.pop(next(iter(self._datasets)))

    def _measure(self, loader: Any) -> tuple[TurnLimits, LoaderRules]:
        cores = count_cores(ranks=count_local_ranks())
        base = max(1, loader.num_workers)
        is_stream = loader._dataset_kind == _ITERABLE
        most = base + _count_spare(loader)  # cores are no bound for those that are blocked
        prefetch = loader.prefetch_factor or 2
        window = base * prefetch
        may_deepen = may_run_ahead(loader._index_sampler)
        limits = TurnLimits(
            base=base,
            most=most if may_deepen else min(most, max(base, window)),
            cores=cores,
            base_window=window,
            most_window=DEEPEST * prefetch * most if may_deepen else window,
        )
        rules = LoaderRules(
            allow_random="random" in self._allowed,
            is_varying=owns_generator(loader.dataset, loader.collate_fn),
            is_stream=is_stream,
            spare=limits.most - base,
        )
        return limits, rules


def _count_spare(loader: Any) -> int:
    """Workers to park at most."""
    free = find_free_memory()
    if free is not None and free < LEAST_FREE_BYTES:
        return 0
    return MOST_SPARE if _start_method(loader) == "fork" else 0


def _start_method(loader: Any) -> str:
    context = loader.multiprocessing_context or multiprocessing
    return str(context.get_start_method())


def _refusal(loader: Any, allowed: frozenset[str]) -> str | None:
    """Why a loader is left alone."""
    dataset = loader.dataset
    if isinstance(dataset, _DATAPIPES):
        return "it reads from a datapipe, which shards itself by worker"
    if loader._dataset_kind == _ITERABLE:
        if "order" not in allowed:
            return (
                "its dataset is iterable: more workers would give different batches (--allow order)"
            )
        return (
            None if loader.num_workers else "its dataset is iterable and read in the main process"
        )
    if not loader.num_workers:
        return _inline_refusal(loader)
    if _start_method(loader) != "fork":
        way = _start_method(loader)
        return f"its workers are started by {way}, which takes seconds each (`fuelline tune` helps)"
    return None


def _inline_refusal(loader: Any) -> str | None:
    """Why batches that are made in the main process stay there."""
    if multiprocessing.get_start_method() != "fork":
        return "num_workers=0, and workers could not be forked here"
    if not may_run_ahead(loader._index_sampler):
        return "num_workers=0, and its sampler may depend on when it is asked"
    if owns_generator(loader.dataset, loader.collate_fn):
        return "num_workers=0, and its dataset has a random generator of its own"
    return None


def _describe(loader: Any) -> str:
    kind = type(loader.dataset)
    return f"{type(loader).__qualname__} of {kind.__module__}.{kind.__qualname__}"[:100]


_AT_ONCE = (
    sampler.SequentialSampler,
    seam.EndlessSampler,
    sampler.WeightedRandomSampler,
    distributed.DistributedSampler,
)
"""Their order is fixed before the first index is given out."""


def may_run_ahead(index_sampler: Any) -> bool:
    """Whether drawing early gives the same indices and disturbs nobody."""
    kind = type(index_sampler)
    if kind is sampler.BatchSampler:
        return may_run_ahead(index_sampler.sampler)
    if kind in {sampler.RandomSampler, sampler.SubsetRandomSampler}:
        return _is_own_stream(index_sampler)
    return kind in _AT_ONCE


def _is_own_stream(random_sampler: Any) -> bool:
    """A permutation is drawn at the first index; further ones later, from the stream it has."""
    if random_sampler.generator is None and type(random_sampler) is sampler.RandomSampler:
        return True  # it seeds its own generator when it starts
    if type(random_sampler) is sampler.SubsetRandomSampler:
        return True
    wanted = random_sampler.num_samples
    return not random_sampler.replacement and wanted <= len(random_sampler.data_source)
