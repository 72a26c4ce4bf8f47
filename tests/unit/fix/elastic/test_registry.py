"""Which loaders are served, and what a job that makes many of them pays."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from fuelline.fix.elastic.journal import FixJournal
from fuelline.fix.elastic.registry import LoaderRegistry

_plain = DataLoader._get_iterator


class Rows:
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoaderRegistry:
    """One that looks at nothing, so that no job here is ever starved."""
    monkeypatch.setattr("fuelline.fix.elastic.controller.LOOK_NS", 1 << 62)
    return LoaderRegistry(FixJournal(str(tmp_path)), frozenset({"safe"}))


def events(tmp_path: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for file in tmp_path.glob("*") for line in file.read_text().splitlines()
    ]


def take(registry: LoaderRegistry, loader: Any) -> tuple[list[int], int]:
    """Batches, and the workers that were started for them."""
    iterator = registry.serve(loader, _plain)
    count = len(getattr(iterator, "_workers", ()))
    return [int(batch) for batch in iterator], count


@pytest.mark.integration
def test_a_loader_that_never_waits_gets_spare_workers_twice_and_then_no_more(
    registry: LoaderRegistry,
) -> None:
    loader = DataLoader(Rows(), num_workers=1)  # type: ignore[arg-type]
    counts = [take(registry, loader)[1] for _ in range(4)]
    assert counts[0] == counts[1] > 1
    assert counts[2:] == [1, 1]


@pytest.mark.integration
def test_a_new_loader_for_each_epoch_is_known_by_its_dataset_or_its_kind(
    registry: LoaderRegistry, tmp_path: Path
) -> None:
    rows = Rows()
    for dataset in (rows, rows, Rows(), Rows()):
        taken, count = take(registry, DataLoader(dataset, num_workers=1))  # type: ignore[arg-type]
        assert taken == list(range(12))
    assert count == 1
    assert [event["event"] for event in events(tmp_path)].count("served") == 3


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        (lambda: DataLoader(Stream(), num_workers=1), "iterable"),
        (lambda: DataLoader(Rows(), num_workers=1, multiprocessing_context="spawn"), "spawn"),  # type: ignore[arg-type]
        (
            lambda: DataLoader(Rows(), num_workers=1, multiprocessing_context="forkserver"),  # type: ignore[arg-type]
            "forkserver",
        ),
        (lambda: DataLoader(Rows(), sampler=iter([1, 2])), "sampler"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_served_is_left_with_a_reason(
    registry: LoaderRegistry, tmp_path: Path, loader: Any, words: str
) -> None:
    assert registry._choose(loader()) is None
    assert words in events(tmp_path)[-1]["why"]


def test_a_loader_whose_settings_change_is_left_to_torch(registry: LoaderRegistry) -> None:
    loader = DataLoader(Rows(), num_workers=1)  # type: ignore[arg-type]
    assert registry._choose(loader) is not None
    loader.prefetch_factor = 5
    assert registry._choose(loader) is None


@pytest.mark.integration
def test_if_ours_cannot_be_built_torchs_is_with_the_same_seed(
    registry: LoaderRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        torch.rand(3)
        raise RuntimeError("not with this torch")

    loader = DataLoader(Rows(), num_workers=1)  # type: ignore[arg-type]
    torch.manual_seed(4)
    seed = _plain(loader)._base_seed
    monkeypatch.setattr("fuelline.fix.elastic.registry.build", fail)
    torch.manual_seed(4)
    iterator = registry.serve(loader, _plain)
    assert iterator._base_seed == seed
    assert [int(batch) for batch in iterator] == list(range(12))


def test_a_loader_that_cannot_be_looked_at_is_torchs(registry: LoaderRegistry) -> None:
    class Moody(DataLoader[int]):
        @property
        def _index_sampler(self) -> Any:
            if torch.is_grad_enabled():
                raise RuntimeError("do not ask")
            return super()._index_sampler

    loader = Moody(Rows(), num_workers=1)  # type: ignore[arg-type]
    assert registry._choose(loader) is None


def test_a_stream_is_left_with_the_word_that_would_allow_it(
    registry: LoaderRegistry, tmp_path: Path
) -> None:
    take(registry, DataLoader(Stream(), num_workers=0))
    (left,) = events(tmp_path)
    assert left["why"].endswith("would give different batches (--allow order)")
