"""What frameworks do around a plain loop: closures, other ways to save, loaders of other libraries.

No framework is needed: modules with their names stand in for them.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from fuelline.record import spool as spooling
from fuelline.record.hooks.torch.install import PARTS, Installation
from fuelline.record.spool import Spool
from fuelline.schema.wire import Kind
from tests.integration.harness import Left, read_spools


def act_on_loaded(name: str, action: Callable[[], None]) -> None:
    if name in sys.modules:
        action()


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    monkeypatch.setattr(spooling, "HOLD_NS", 0)
    installation = Installation(Spool(f"{tmp_path}/spool"))
    yield installation
    installation.uninstall()


def read(tmp_path: Path) -> Left:
    (left,) = read_spools(tmp_path)
    return left


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def write(tensors: Any, filename: Any) -> None:
    Path(filename).write_bytes(bytes(tensors))


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("safetensors.torch", "save_file"),
        ("lightning.fabric.utilities.cloud_io", "_atomic_save"),
        ("lightning_fabric.utilities.cloud_io", "_atomic_save"),
        ("torch.distributed.checkpoint.state_dict_saver", "save"),
    ],
)
def test_a_checkpoint_of_a_framework_is_one_with_its_path_and_size(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    function: str,
) -> None:
    module = stand_in(monkeypatch, name, **{function: write})
    _, file, install = next(part for part in PARTS if part[0] == name)
    installation.add(file, install)
    target = tmp_path / "weights"
    getattr(module, function)(1000, target)
    left = read(tmp_path)
    (record,) = left.of(Kind.PAUSE)
    assert (record[2], left.texts[record[3]]) == (1000, str(target).encode())
    installation.uninstall()
    assert getattr(module, function) is write


def test_a_module_without_the_function_is_a_blindspot_and_stays_as_it_is(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = stand_in(monkeypatch, "safetensors.torch")
    before = dict(vars(module))
    installation.add("savers", "install_safetensors")
    assert [blind["what"] for blind in read(tmp_path).blindspots()] == ["hooks savers"]
    assert vars(module) == before


def test_a_step_whose_closure_takes_its_batch_is_counted(
    installation: Installation, tmp_path: Path
) -> None:
    installation.add_all(act_on_loaded)
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    batches = iter(DataLoader([1.0] * 10))  # type: ignore[arg-type]

    def closure() -> torch.Tensor:
        loss = (next(batches) * weight).sum()
        loss.backward()
        return loss

    for _ in range(10):
        optimizer.step(closure)
    left = read(tmp_path)
    assert (left.steps, len(left.of(Kind.WAIT)), len(left.of(Kind.BACKWARD))) == (10, 10, 10)


def test_a_step_that_raised_does_not_hide_those_of_another_optimizer(
    installation: Installation, tmp_path: Path
) -> None:
    installation.add_all(act_on_loaded)
    weight = torch.ones(1, requires_grad=True)
    first, second = (torch.optim.SGD([weight], lr=0.1) for _ in range(2))
    batches = iter(DataLoader([1.0] * 20))  # type: ignore[arg-type]

    def fail() -> None:
        raise ArithmeticError

    for _ in range(10):
        (next(batches) * weight).sum().backward()
        with pytest.raises(ArithmeticError):
            first.step(fail)
        (next(batches) * weight).sum().backward()
        second.step()
    left = read(tmp_path)
    assert [record[2] for record in left.of(Kind.STEP)] == [1] * 10


def test_an_optimizer_and_the_one_around_it_both_leave_their_marks(
    installation: Installation, tmp_path: Path
) -> None:
    installation.add_all(act_on_loaded)
    weight = torch.ones(1, requires_grad=True)

    class Wrapper(torch.optim.SGD):
        inner = torch.optim.SGD([weight], lr=0.1)

        def step(self, closure: Any = None) -> None:
            self.inner.step()

    weight.sum().backward()
    outer = Wrapper([weight], lr=0.1)
    for _ in range(20):
        outer.step()
    left = read(tmp_path)
    assert [record[2] for record in left.of(Kind.STEP)] == [1, 2] * 20


class Stateful(DataLoader[Any]):
    """As torchdata's: builds its iterator itself, and takes from it what a resumed one skips."""

    skip = 0

    def __iter__(self) -> Any:
        iterator = self._get_iterator()
        for _ in range(self.skip):
            next(iterator)
        return iterator


def test_a_loader_of_another_library_is_known_and_what_it_skips_is_part_of_building_it(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = "torchdata.stateful_dataloader.stateful_dataloader"
    stand_in(monkeypatch, name, StatefulDataLoader=Stateful)
    installation.add_all(act_on_loaded)
    loader = Stateful([1.0] * 8, batch_size=2)  # type: ignore[arg-type]
    loader.skip = 3
    for _ in range(2):
        assert len(list(loader)) == 1
    left = read(tmp_path)
    assert [settings["batch_size"] for settings in left.settings()] == [2]
    assert len(left.of(Kind.SOURCE_START)) == 2
    assert [record[6] for record in left.of(Kind.WAIT)] == [3, 4] * 2
