"""Answers questions about the framework, whose answers must be the same when recorded."""

import io
import json
import pickle
import sys
import tempfile
import threading
from collections import UserDict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset


class Numbers(Dataset[int]):
    def __init__(self, size: int = 20, fails_at: int = -1) -> None:
        self.size = size
        self.fails_at = fails_at

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if index == self.fails_at:
            raise KeyError(f"no row {index}")
        return index


class Nested(Dataset[torch.Tensor]):
    """Each item is the sum of what a loader of its own gives."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        inner = DataLoader(Numbers(4 + index), batch_size=2)
        return torch.stack([batch.sum() for batch in inner]).sum()


class NestedStream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from DataLoader(Numbers(6), batch_size=3)


class Doubling(DataLoader[int]):
    """A subclass whose iteration is a generator around the original."""

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield batch * 2


class Moody(DataLoader[int]):
    """A subclass whose attributes must not be read without need, and that cannot be hashed."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("do not compare me")

    @property
    def mood(self) -> str:
        raise RuntimeError("do not ask")


class Loud(torch.Tensor):
    """Writes down which functions are called on it."""

    heard: list[str] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.heard.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


def loud_collate(rows: list[int]) -> Any:
    return torch.tensor(rows).as_subclass(Loud)


def as_user_dict(rows: list[int]) -> UserDict[str, torch.Tensor]:
    return UserDict({"rows": torch.tensor(rows)})


def failing_collate(rows: list[int]) -> None:
    raise ValueError(f"cannot collate {len(rows)}")


def taken(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


def of_error(action: Callable[[], Any]) -> list[str]:
    """Type and words of what an action raises; the frames in a worker's message are ours to add."""
    try:
        action()
    except Exception as error:  # noqa: BLE001
        lines = str(error).splitlines()
        return [type(error).__name__, lines[0], lines[-1]]
    return []


def length_of_iterator() -> list[int]:
    return [len(iter(DataLoader(Numbers(), batch_size=3, num_workers=n))) for n in (0, 2)]


def type_of_iterator() -> list[str]:
    return [type(iter(DataLoader(Numbers(), num_workers=n))).__name__ for n in (0, 1)]


def pickled_loader() -> list[Any]:
    loader = DataLoader(Numbers(), batch_size=6)
    before = pickle.dumps(loader)
    first = taken(loader)
    again = pickle.loads(pickle.dumps(loader))
    return [first, taken(again), before == pickle.dumps(loader), sorted(vars(loader))]


def pickled_iterator() -> list[str]:
    return of_error(lambda: pickle.dumps(iter(DataLoader(Numbers()))))


def subclasses() -> list[Any]:
    moody = Moody(Numbers(), batch_size=10)
    return [taken(Doubling(Numbers(), batch_size=10, num_workers=1)), taken(moody)]


def error_in_dataset() -> list[Any]:
    loaders = [DataLoader(Numbers(fails_at=3), num_workers=n) for n in (0, 1)]
    return [of_error(partial(taken, loader)) for loader in loaders]


def error_in_collate() -> list[Any]:
    loaders = [DataLoader(Numbers(), num_workers=n, collate_fn=failing_collate) for n in (0, 1)]
    return [of_error(partial(taken, loader)) for loader in loaders]


def error_in_worker_init() -> list[str]:
    def fail(worker_id: int) -> None:
        raise OSError(f"worker {worker_id}")

    return of_error(lambda: taken(DataLoader(Numbers(), num_workers=1, worker_init_fn=fail)))


def stop_iteration_again() -> list[str]:
    iterator = iter(DataLoader(Numbers(2)))
    list(iterator)
    return [str(next(iterator, "over")), str(next(iterator, "over"))]


def early_break() -> list[Any]:
    loader = DataLoader(Numbers(), batch_size=2, num_workers=2, persistent_workers=True)
    seen = []
    for _ in range(3):
        for number, batch in enumerate(loader):
            seen.append(batch.tolist())
            if number == 2:
                break
    return seen


def nested_loaders() -> list[Any]:
    inline = taken(DataLoader(Nested(), batch_size=2))
    forked = taken(DataLoader(Nested(), batch_size=2, num_workers=2))
    return [inline, forked, taken(DataLoader(NestedStream(), batch_size=None, num_workers=1))]


def two_loaders_at_once() -> list[Any]:
    left, right = DataLoader(Numbers(6), num_workers=1), DataLoader(Numbers(6), batch_size=2)
    return [[one.tolist(), two.tolist()] for one, two in zip(left, right, strict=False)]


def threads_with_a_loader_each() -> list[Any]:
    results: list[Any] = [None] * 4

    def work(number: int) -> None:
        results[number] = taken(DataLoader(Numbers(10 + number), batch_size=4))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def one_iterator_for_many_threads() -> list[int]:
    iterator, seen, lock = iter(DataLoader(Numbers(200))), [], threading.Lock()

    def work() -> None:
        while True:
            with lock:
                batch = next(iterator, None)
            if batch is None:
                return
            seen.append(int(batch))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(seen)


def tensor_subclass_hears_nothing() -> list[Any]:
    list(DataLoader(Numbers(4), batch_size=2, collate_fn=loud_collate))
    heard, Loud.heard = Loud.heard, []
    return heard


def other_batches() -> list[str]:
    loader = DataLoader(Numbers(4), batch_size=2, collate_fn=as_user_dict)
    strings = DataLoader(["a", "b", "c"], batch_size=2)
    return [str(batch) for batch in (*loader, *strings)]


def gradients() -> list[Any]:
    weight = torch.ones(3, requires_grad=True)
    (weight * 2).sum().backward()
    torch.autograd.backward([(weight * 3).sum(), weight.sum()], inputs=[weight])
    loss = weight.square().sum()
    torch.autograd.backward(tensors=loss, retain_graph=True)
    loss.backward()
    return [weight.grad.tolist() if weight.grad is not None else None, of_error(loss.backward)]


def reentrant_checkpoint() -> list[float]:
    layer = torch.nn.Linear(2, 2)
    torch.nn.init.ones_(layer.weight)
    torch.nn.init.ones_(layer.bias)
    data = torch.ones(1, 2, requires_grad=True)
    again = torch.utils.checkpoint.checkpoint(layer, data, use_reentrant=True)
    again.sum().backward()
    return data.grad.tolist() if data.grad is not None else []


def optimizer_with_closure() -> list[float]:
    weight = torch.tensor([3.0], requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return list(weight.tolist())


def optimizer_that_raises() -> list[Any]:
    weight = torch.tensor([3.0], requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def closure() -> torch.Tensor:
        raise ValueError("no loss today")

    first = of_error(lambda: optimizer.step(closure))
    weight.sum().backward()
    optimizer.step()
    return [first, weight.tolist(), pickle.dumps(optimizer) == pickle.dumps(optimizer)]


def saved_files() -> list[Any]:
    state = {"a": torch.arange(5)}
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.pt"
        torch.save(state, path)
        with path.with_suffix(".2").open("wb") as file:
            torch.save(state, f=file)
        sizes = [len(buffer.getvalue()), path.stat().st_size]
        return [sizes, of_error(lambda: torch.save(state, f"{folder}/missing/x.pt"))[0]]


def synchronisation_without_a_device() -> list[str]:
    return of_error(torch.cuda.synchronize)[:1]


QUESTIONS: dict[str, Callable[[], Any]] = {
    question.__name__: question
    for question in (
        length_of_iterator,
        type_of_iterator,
        pickled_loader,
        pickled_iterator,
        subclasses,
        error_in_dataset,
        error_in_collate,
        error_in_worker_init,
        stop_iteration_again,
        early_break,
        nested_loaders,
        two_loaders_at_once,
        threads_with_a_loader_each,
        one_iterator_for_many_threads,
        tensor_subclass_hears_nothing,
        other_batches,
        gradients,
        reentrant_checkpoint,
        optimizer_with_closure,
        optimizer_that_raises,
        saved_files,
        synchronisation_without_a_device,
    )
}


if __name__ == "__main__":
    answers = {name: question() for name, question in QUESTIONS.items()}
    sys.stdout.write(json.dumps(answers) + "\n")
