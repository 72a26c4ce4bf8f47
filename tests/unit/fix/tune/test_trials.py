"""Trials in a loop of our own, and a torch without one of the private parts that they use."""

import json
import multiprocessing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from fuelline.cli.fix.trial_runs import _read
from fuelline.fix.tune import trials
from fuelline.schema.errors import InputError


class Stream(IterableDataset[int]):
    """Does not split its samples: each worker gives all of them."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(6))


def take(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dataset: Any = range(6),
    turns: Sequence[dict[str, Any]] = ({},),
) -> tuple[int, Path]:
    """Batches that a loop gets until the trial ends it, and the trial's account."""
    for name in ("__init__", "__iter__"):
        monkeypatch.setattr(DataLoader, name, getattr(DataLoader, name))  # put back
    plan, result = tmp_path / "plan.json", tmp_path / "result.json"
    settings = {"seconds": 0.1, "rounds": 1, "budget_s": 9, "turns": turns}
    plan.write_text(json.dumps({"result": str(result), **settings}))
    trials.install(str(plan))
    taken: list[object] = []
    with pytest.raises(SystemExit):
        taken.extend(DataLoader(dataset, num_workers=1))
    assert multiprocessing.active_children() == []
    return len(taken), result


@pytest.mark.parametrize("path", trials.PARTS)
def test_the_part_is_named_before_a_worker_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(trials, "PARTS", (f"{path}_of_before",))
    taken, result = take(tmp_path, monkeypatch)
    assert taken == 0
    with pytest.raises(InputError) as refused:
        _read(result, 0)
    part = path.replace(":", ".").replace("#", ".")
    said = f"This job cannot be tuned: torch {torch.__version__} has no {part}_of_before. Nothing"
    assert str(refused.value).startswith(said)


@pytest.mark.integration
def test_this_torch_has_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, result = take(tmp_path, monkeypatch)
    assert taken > trials.BLOCKS
    (turn,) = _read(result, 0).account["turns"]
    assert turn["problem"] is None
    assert len(turn["rates"]) >= 2


def test_short_epochs_are_timed_whole_so_that_starting_workers_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, result = take(tmp_path, monkeypatch)
    (turn,) = _read(result, 0).account["turns"]
    # Six batches of one number each take no time: what an epoch takes is the start of its worker.
    assert max(turn["rates"]) < 6 / 0.002


def test_another_number_of_workers_is_not_tried_on_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [{}, {"num_workers": 2}, {"num_workers": 1, "prefetch_factor": 4}]
    _, result = take(tmp_path, monkeypatch, Stream(), turns)
    own, more, deeper = _read(result, 0).measured(3)
    assert own.blocks
    assert deeper.blocks
    assert more.blocks == ()
    assert more.problem is not None
    assert "samples may come several times" in more.problem


def test_only_batches_that_were_asked_for_after_the_turn_had_settled_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter([0.0, 0.1, 0.2, 1.0, *(1.0 + 0.01 * tick for tick in range(1, 40))])
    monkeypatch.setattr(trials, "monotonic", lambda: next(clock))
    epoch = trials._TimedEpoch(DataLoader(range(6), num_workers=2))  # type: ignore[arg-type]
    for _ in range(3 + 4):  # the third comes after it has settled; four were under way then
        epoch.take()
    assert not epoch.is_measured(0.01)
    for _ in range(20):
        epoch.take()
    assert epoch.is_measured(0.1)
    assert epoch.rates() == pytest.approx([100.0] * trials.BLOCKS)
