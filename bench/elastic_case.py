"""One randomised loader, iterated plainly and elastically; both must give the same to the bit.

A case is a loader's settings, a dataset of a kind, and a script: at which batch how many workers
become active, how many batches are under way, which worker is killed, how many batches the loop
keeps, and how often there is no memory for them. What is compared: the batches, their order, what
the kept ones are at the end, errors, and the random streams of the main process afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import pickle
import random
import signal
import warnings
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from fuelline.fix.elastic.controller import LoaderController, LoaderRules
from fuelline.fix.elastic.iterator import build
from fuelline.fix.elastic.journal import FixJournal
from fuelline.fix.elastic.observation import TurnLimits

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLERS = ("in order", "shuffled", "weighted", "subset", "distributed", "own", "own batches")
KINDS = (
    *("plain", "nested", "text", "drawing", "asking", "failing"),
    *("wide", "ragged", "arrays", "objects"),
)
WIDTHS = (0, 1, 100, 1_000, 8_000, 16_000, 100_000)
"""Of rows, in numbers of four bytes: from none to what takes a hundred pages."""


@dataclass(frozen=True)
class Case:
    """What is drawn at random."""

    size: int
    batch_size: int | None
    workers: int
    spare: int
    prefetch: int
    sampler: str
    kind: str
    epochs: int
    persistent: bool
    in_order: bool
    drop_last: bool
    own_collate: bool
    own_start: bool
    own_generator: bool
    break_at: int | None
    seed: int
    resizes: tuple[tuple[int, int, int], ...] = ()
    """Batch, active workers, batches under way."""
    kills: tuple[int, ...] = ()
    """Before these batches the worker that has most to do is killed."""
    width: int = 6
    """Numbers of a row, for kinds that have rows of any size."""
    kept: int = 0
    """Batches that the loop keeps, the last ones; they are looked at again when they go."""
    refusals: int = 0
    """Every so manieth time a worker asks for shared memory there is none; 0 for never."""


def draw_case(draw: random.Random) -> Case:
    """Settings that torch accepts, and a script that the elastic loader may meet."""
    workers, prefetch, kind = draw.randint(1, 4), draw.randint(1, 3), draw.choice(KINDS)
    sampler, spare = draw.choice(SAMPLERS), draw.randint(0, 3)
    may_change = kind not in {"drawing", "asking"}
    # Without an order it is chance which worker makes a batch, and which batches come first.
    # The user's own sampler draws from the loop's stream, which goes on after a batch and not after
    # an error: without an order it is chance there, too, what is drawn when.
    is_chance = not may_change or (kind == "failing" and sampler.startswith("own"))
    in_order = draw.random() < 0.8 or is_chance
    resizes = [
        (
            draw.randint(1, 25),
            draw.randint(1, workers + spare),
            workers * prefetch if sampler.startswith("own") else draw.randint(1, 12),
        )
        for _ in range(draw.randint(0, 3) if may_change else 0)
    ]
    kills = [draw.randint(1, 20) for _ in range(draw.choice((0, 0, 1, 2)) if may_change else 0)]
    return Case(
        size=draw.randint(1, 70),
        batch_size=draw.choice((None, 1, 3, 4)),
        workers=workers,
        spare=spare,
        prefetch=prefetch,
        sampler=sampler,
        kind=kind,
        epochs=draw.randint(1, 3),
        persistent=draw.random() < 0.5,
        in_order=in_order,
        drop_last=draw.random() < 0.3,
        own_collate=draw.random() < 0.3,
        own_start=draw.random() < 0.3,
        own_generator=draw.random() < 0.3,
        break_at=draw.choice((None, None, 1, 5)) if in_order else None,
        seed=draw.randint(0, 999),
        resizes=tuple(resizes),
        kills=tuple(kills),
        width=draw.choice(WIDTHS),
        kept=draw.choice((0, 0, 1, 5, 1000)),
        refusals=draw.choice((0, 0, 0, 1, 3)),
    )


class Rows(Dataset[Any]):
    """Samples of the case's kind."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def __len__(self) -> int:
        return self.case.size

    def __getitem__(self, index: int) -> Any:
        row = torch.arange(6, dtype=torch.float32) * index
        kind = self.case.kind
        if kind in {"wide", "ragged", "arrays", "objects"}:
            width = index * self.case.width // self.case.size if kind == "ragged" else None
            return _any_row(kind, index, self.case.width if width is None else width)
        if kind == "nested":
            return {"row": row, "pair": (index, [torch.tensor(index), row.double()])}
        if kind == "text":
            return f"row {index}" * (index % 5)
        if kind == "drawing":
            return row + torch.rand(6) + random.random() + float(np.random.rand())
        if kind == "asking":
            info = torch.utils.data.get_worker_info()
            return row, info.id if info is not None else -1
        if kind == "failing" and index % 13 == 7:
            raise KeyError(f"no row {index}")
        return row, index


class Pair(NamedTuple):
    """A batch of a class of the user's own."""

    row: Any
    label: int


class Holder:
    """Another one, which is nobody's container."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts


def _any_row(kind: str, index: int, width: int) -> Any:
    row = torch.arange(width, dtype=torch.float32) + index
    if kind == "arrays":
        return row.numpy(), np.float64(index)
    return Pair(row, index) if kind == "wide" else row


def collate_any(rows: list[Any]) -> Any:
    """The user's own, of kinds that torch's cannot make a batch of, or not the same."""
    if isinstance(rows[0], torch.Tensor):
        longest = max(row.numel() for row in rows)
        padded = [torch.nn.functional.pad(row, (0, longest - row.numel())) for row in rows]
        made = torch.utils.data.default_collate(padded)
        return Holder([made, *_odd_tensors(made, rows[0])])
    return np.stack([row for row, _ in rows]), "text" * len(rows)


def _odd_tensors(made: torch.Tensor, row: torch.Tensor) -> list[Any]:
    """Views of a batch's memory, and tensors that are more than their memory."""
    whole = [made[:1], made.T, made.expand(2, *made.shape), torch.empty(0, 3)]
    small = torch.ones(3) * made.numel()
    sparse = [small.to_sparse(), small.reshape(1, 3).to_sparse_csr()]
    return [*whole, torch.nn.Parameter(small), *sparse, row[::2], {"half": made.half()}]


class Halving(Sampler[int]):
    """The user's own: draws from the stream that the training draws from, index by index."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Any:
        for _ in range(self.size):
            yield int(torch.randint(self.size, ()).item())

    def __len__(self) -> int:
        return self.size


def collate(rows: list[Any]) -> Any:
    """The user's own."""
    return [len(rows), torch.utils.data.default_collate(rows)]


def start(worker_id: int) -> None:
    """The user's own `worker_init_fn`."""
    np.random.seed(worker_id + 1)


@dataclass
class Result:
    """All that a loop can see."""

    batches: list[bytes] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    streams: bytes = b""
    spoilt: int = 0
    """Kept batches that changed."""

    def comparable(self, *, in_order: bool) -> tuple[Any, ...]:
        """The order of batches and errors counts only where the loader promises one."""
        if in_order:
            return self.batches, self.errors, self.streams, self.spoilt
        return sorted(self.batches), sorted(self.errors), self.streams, self.spoilt


class Scripted(LoaderController):
    """Changes what the case says, instead of what a governor would."""

    def __init__(self, case: Case, crew: Any = None) -> None:
        window = case.workers * case.prefetch
        limits = TurnLimits(
            base=case.workers, most=case.workers + case.spare, cores=64.0,
            base_window=window, most_window=window,
        )  # fmt: skip
        rules = LoaderRules(allow_random=False, is_varying=False, is_stream=False, spare=case.spare)
        super().__init__(1, limits, rules, FixJournal("/nonexistent/journal"), crew=crew)
        self._case = case
        self.taken = 0

    def count(self, iterator: Any, began_ns: int, ended_ns: int, batch: Any) -> None:
        """A batch was given out."""
        self.taken += 1
        for at, active, window in self._case.resizes:
            if at == self.taken:
                usable = len(iterator._fl_usable())
                iterator.fl_resize(min(active, usable), max(1, window))
        if self.taken in self._case.kills and len(iterator._fl_usable()) > 1:
            _kill_busiest(iterator)


def _kill_busiest(iterator: Any) -> None:
    usable = iterator._fl_usable()
    victim = max(usable, key=iterator._fl_loads.__getitem__)
    os.kill(iterator._workers[victim].pid, signal.SIGKILL)


def make_loader(case: Case) -> Any:
    """The loader of a case."""
    options: dict[str, Any] = {"batch_size": case.batch_size, "drop_last": case.drop_last}
    rows = Rows(case)
    if case.sampler == "shuffled":
        options["shuffle"] = True
    elif case.sampler == "own batches":
        size = case.batch_size or 3
        options = {"batch_sampler": BatchSampler(Halving(case.size), size, case.drop_last)}
    elif case.sampler != "in order":
        options["sampler"] = _sampler(case, rows)
    if case.batch_size is None and "batch_sampler" not in options:
        options["drop_last"] = False
    if case.own_collate and case.batch_size is not None:
        options["collate_fn"] = collate
    if case.kind in {"ragged", "objects"} or (case.kind == "arrays" and case.own_collate):
        is_batched = case.batch_size is not None or "batch_sampler" in options
        options["collate_fn"] = collate_any if is_batched else None
    return DataLoader(
        rows,
        num_workers=case.workers,
        prefetch_factor=case.prefetch,
        persistent_workers=case.persistent,
        in_order=case.in_order,
        worker_init_fn=start if case.own_start else None,
        generator=torch.Generator().manual_seed(case.seed) if case.own_generator else None,
        **options,
    )


def _sampler(case: Case, rows: Rows) -> Any:
    makers: dict[str, Callable[[], Any]] = {
        "weighted": lambda: WeightedRandomSampler([1.0 + i for i in range(case.size)], case.size),
        "subset": lambda: SubsetRandomSampler(range(0, case.size, 2)),
        "distributed": lambda: DistributedSampler(rows, num_replicas=2, rank=1),
        "own": lambda: Halving(case.size),
    }
    return makers[case.sampler]()


def iterate(case: Case, *, elastic: bool, controller: Scripted | None = None) -> Result:
    """Iterate as a training would: it draws random numbers itself between batches."""
    torch.manual_seed(case.seed)
    random.seed(case.seed)
    np.random.seed(case.seed)
    result, controller = Result(), controller or Scripted(case)
    with warnings.catch_warnings(), _refusing(case.refusals):
        warnings.simplefilter("ignore")  # torch finds many workers for this machine
        loader = make_loader(case)
        for epoch in range(case.epochs):
            iterator = _iterator(loader, controller) if elastic else iter(loader)
            _drain(case, iterator, result, is_last=epoch == case.epochs - 1)
            if not elastic and not case.persistent:
                iterator._shutdown_workers()  # in a cycle with an error it takes 5 s per worker
    _, drawn, *_ = np.random.get_state(legacy=True)
    states = (torch.get_rng_state().tolist(), random.getstate(), np.asarray(drawn).tolist())
    result.streams = pickle.dumps(states)
    if elastic and loader._iterator is not None:
        loader._iterator._shutdown_workers()
    return result


@contextlib.contextmanager
def _refusing(often: int) -> Any:
    """Have workers find no memory, as in a full container: they are forked with this."""
    original, asked = os.posix_fallocate, itertools.count(1)

    def refuse(fd: int, offset: int, size: int) -> None:
        if often and next(asked) % often == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(fd, offset, size)

    os.posix_fallocate = refuse
    try:
        yield
    finally:
        os.posix_fallocate = original


def _iterator(loader: Any, controller: LoaderController) -> Any:
    """As `DataLoader.__iter__` does it."""
    if not loader.persistent_workers:
        return build(loader, controller)
    if loader._iterator is None:
        loader._iterator = build(loader, controller)
    else:
        loader._iterator._reset(loader)
    return loader._iterator


def _drain(case: Case, iterator: Any, result: Result, *, is_last: bool) -> None:
    kept: deque[tuple[Any, bytes]] = deque()
    for number in range(10 * case.size + 10):
        if number == case.break_at and not is_last:
            break
        try:
            batch = next(iterator)
        except StopIteration:
            break
        except KeyError as error:
            lines = str(error).replace("\\n", "\n").splitlines()
            result.errors.append(lines[-1])
            continue
        result.batches.append(_as_bytes(batch))
        torch.rand(1)
        kept.append((batch, result.batches[-1]))
        del batch
        if len(kept) > case.kept:
            result.spoilt += _is_spoilt(*kept.popleft())
    result.spoilt += sum(_is_spoilt(*each) for each in kept)


def _is_spoilt(batch: Any, was: bytes) -> bool:
    """Whether a batch is no more what it was when it came."""
    return _as_bytes(batch) != was


def _as_bytes(batch: Any) -> bytes:
    if isinstance(batch, torch.Tensor):
        return _tensor_as_bytes(batch)
    if isinstance(batch, np.ndarray):
        content = hashlib.sha1(batch.tobytes()).digest()
        return repr((batch.dtype, batch.shape, batch.flags.writeable, content)).encode()
    if isinstance(batch, Holder):
        return b"Holder" + _as_bytes(batch.parts)
    if isinstance(batch, dict):
        return b"|".join(name.encode() + _as_bytes(part) for name, part in sorted(batch.items()))
    if isinstance(batch, (list, tuple)):
        kind = type(batch).__name__.encode()
        return kind + b"(" + b",".join(_as_bytes(part) for part in batch) + b")"
    return repr(batch).encode()


def _tensor_as_bytes(tensor: torch.Tensor) -> bytes:
    """All that it is, the memory behind it included."""
    own: tuple[Any, ...] = (type(tensor), tensor.dtype, tensor.layout, tensor.requires_grad)
    if tensor.layout == torch.strided:
        storage = tensor.untyped_storage()
        own += (tensor.stride(), tensor.storage_offset(), storage.nbytes())
    dense = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
    content = hashlib.sha1(dense.contiguous().numpy().tobytes()).digest()
    return repr((*own, tuple(tensor.shape), content)).encode()


def differs(case: Case) -> str:
    """What is not the same; empty if all is."""
    plain, elastic = iterate(case, elastic=False), iterate(case, elastic=True)
    left = plain.comparable(in_order=case.in_order)
    right = elastic.comparable(in_order=case.in_order)
    names = ("batches", "errors", "random streams of the main process", "kept batches")
    return ", ".join(name for name, one, two in zip(names, left, right, strict=True) if one != two)
