"""Batches that Python makes for Keras: a `PyDataset`, alone, with threads, or with processes.

Keras reads a PyDataset through a generator. What the generator hands over is timed where tf.data
asks for it; what a thread or a process takes for one batch is a fetch, as of any loader's worker.

    generator     |------|      |----------|      one batch after the other, for tf.data
    get_index   |---------|  |---------|          in workers, up to max_queue_size ahead
"""

import sys
from _thread import get_native_id
from collections.abc import Iterator
from time import monotonic_ns, thread_time_ns
from typing import Any

from fuelline.record.hooks.guest import Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.hooks.tensorflow import seam
from fuelline.record.hooks.tensorflow.batches import count_samples
from fuelline.record.hooks.tensorflow.sources import Datasets, Production
from fuelline.schema.wire import Flag, Kind

__all__ = ["install"]

PYDATASET = "keras.PyDataset"
_FETCH, _FETCH_IO, _ERROR = int(Kind.FETCH), int(Kind.FETCH_IO), int(Flag.ERROR)


def install(guest: Guest, patches: Patches, sources: Datasets) -> list[Hook]:
    """Watch every PyDataset of the process, and in the workers that are forked from it."""
    module = sys.modules[seam.PYDATASET]
    start = GeneratorStart(guest, sources)
    fetch = MakeBatch(guest, start.productions)
    patches.replace(
        module.PyDatasetAdapter,
        "_get_iterator",
        start.wrap(module.PyDatasetAdapter._get_iterator),  # noqa: SLF001
    )
    patches.replace(module, "get_index", fetch.wrap(module.get_index))
    return [start, fetch]


class GeneratorStart(Hook):
    """The generator behind an epoch of a PyDataset is made."""

    name = "generator of a PyDataset"
    code = "step-hook"
    forbids = "saying how long the training waited for a PyDataset"

    def __init__(self, guest: Guest, sources: Datasets) -> None:
        super().__init__(guest)
        self._sources = sources
        self.productions: dict[Any, Production] = {}
        """By the number that Keras gives to what queues the batches of workers."""

    def wrap(self, original: Any) -> Any:
        """In its place: the same batches, each timed."""

        def get_iterator(adapter: Any) -> Any:
            made = original(adapter)
            return made if not self.is_on else self._watch(adapter, made)

        get_iterator.__wrapped__ = original  # type: ignore[attr-defined]
        return get_iterator

    def _watch(self, adapter: Any, made: Any) -> Any:
        try:
            production = Production(_describe(adapter))
            queue = adapter.enqueuer
            if queue is not None:
                self.productions[queue.uid] = production
                production.list_processes = _list_processes
            self._sources.start(production)
            return TimedGenerator(made, production)
        except Exception as fault:  # noqa: BLE001 - the guard of this hook
            self.answer_for(fault)
            return made


class TimedGenerator:
    """The generator's batches, with the time that each took."""

    __slots__ = ("_made", "_production")

    def __init__(self, made: Iterator[Any], production: Production) -> None:
        self._made = made
        self._production = production

    def __iter__(self) -> "TimedGenerator":
        return self

    def __next__(self) -> Any:
        begun_ns = monotonic_ns()
        batch = next(self._made)
        self._production.add(begun_ns, monotonic_ns(), count_samples(batch))
        return batch


class MakeBatch(Hook):
    """A thread or a process makes one batch: `PyDataset.__getitem__`."""

    name = "worker fetch"
    forbids = "telling what the workers of a PyDataset spend their time on"

    def __init__(self, guest: Guest, productions: dict[Any, Production]) -> None:
        super().__init__(guest)
        self._productions = productions
        self._pid = 0

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Note the thread's counters."""
        production = self._productions.get(args[0])
        if production is not None:
            production.threads.add(get_native_id())
        return self.guest.lane.clock.start(), thread_time_ns(), monotonic_ns()

    def end(self, ticket: Any, result: Any, error: BaseException | None) -> None:
        """Record what the fetch took."""
        now_ns = monotonic_ns()
        before, cpu_ns, start_ns = ticket
        dur_ns = now_ns - start_ns
        used_ns = thread_time_ns() - cpu_ns
        used = self.guest.lane.clock.stop(before, dur_ns)
        flags = 0 if error is None else _ERROR
        samples = count_samples(result) if error is None else 0
        self.guest.append(_FETCH, start_ns, dur_ns, 0, samples, used_ns, used.queued_ns, 0, flags)
        self.guest.append(
            _FETCH_IO, start_ns, dur_ns, used.rchar_bytes, used.disk_bytes, used.read_calls,
            used.major_faults, used.system_ns, flags,
        )  # fmt: skip


def _describe(adapter: Any) -> dict[str, Any]:
    """The settings in the words of every loader."""
    data, queue = adapter.py_dataset, adapter.enqueuer
    workers = int(data.workers) if queue is not None else 0
    several = workers and bool(data.use_multiprocessing)
    return {
        "loader": PYDATASET,
        "framework": PYDATASET,
        "dataset": type(data).__name__,
        "num_workers": workers,
        "context": "processes" if several else "threads" if workers else None,
        "prefetch_factor": max(1, int(data.max_queue_size) // workers) if workers else None,
    }


def _list_processes() -> list[int]:
    """Pids of the pools' processes; threads have none."""
    pools = sys.modules[seam.PYDATASET]._DATA_POOLS  # noqa: SLF001 - named in the seam
    found = [getattr(worker, "pid", None) for pool in list(pools) for worker in pool._pool]  # noqa: SLF001
    return [pid for pid in found if pid]
