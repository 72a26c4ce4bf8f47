"""A torch without one of the private parts that hooks use: they stay out, and the job runs."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.distributed import distributed_c10d
from torch.utils.data import DataLoader

from fuelline.record.hooks.torch import seam
from fuelline.record.hooks.torch.install import Installation
from fuelline.record.spool import Spool
from fuelline.schema.seams import MissingPartError, find_missing, find_part
from tests.integration.harness import read_spools

ON_DEVICES = (
    ("transfer", "install_copies"),
    ("transfer", "install_reads"),
    ("device_clock", "install"),
)


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    installation = Installation(Spool(f"{tmp_path}/spool"))
    yield installation
    installation.uninstall()


def act(name: str, action: Callable[[], None]) -> None:
    importlib.import_module("torch._dynamo.eval_frame")
    if name in sys.modules:
        action()


def install(installation: Installation) -> None:
    installation.add_all(act)
    for part in ON_DEVICES:
        installation.add(*part)


def train() -> float:
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.zeros(())
    for batch in DataLoader(torch.ones(6, 2), batch_size=2):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def spots(tmp_path: Path) -> dict[str, str]:
    (left,) = read_spools(tmp_path)
    return {spot["what"]: spot["why"] for spot in left.blindspots()}


@pytest.mark.parametrize("name", seam.PARTS)
def test_hooks_whose_part_is_gone_stay_out_by_name_and_the_job_computes_the_same(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    plain = train()
    monkeypatch.setitem(seam.PARTS, name, f"{seam.PARTS[name]}_of_before")
    install(installation)
    assert train() == plain
    out = {file for (file, _), needs in seam.NEEDED.items() if name in needs}
    found = spots(tmp_path)
    assert found.keys() == {f"hooks {file}" for file in out}
    assert all(torch.__version__ in why and "_of_before" in why for why in found.values())


@pytest.mark.parametrize("name", seam.DETAILS)
def test_an_attribute_that_is_only_read_costs_a_blindspot_and_no_hook(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    plain = train()
    monkeypatch.setitem(seam.DETAILS, name, f"{seam.DETAILS[name]}_of_before")
    install(installation)
    assert train() == plain
    (left,) = read_spools(tmp_path)
    assert left.count()["WAIT"] == 4
    assert seam.attribute_of(seam.DETAILS[name]) in spots(tmp_path)["details of loaders"]


def test_this_torch_has_all_parts_and_every_part_is_somebodys(
    installation: Installation, tmp_path: Path
) -> None:
    install(installation)
    train()
    assert spots(tmp_path) == {}
    assert {name for needs in seam.NEEDED.values() for name in needs} == set(seam.PARTS)


def test_the_group_of_all_ranks_is_found_by_its_public_name_where_the_private_one_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert seam.name_default_group() == "_default_pg"
    monkeypatch.setattr(distributed_c10d, "_world", SimpleNamespace(default_pg=None))
    assert seam.name_default_group() == "default_pg"


def test_a_part_is_found_by_its_path() -> None:
    assert find_part("json.decoder:JSONDecoder.decode").__name__ == "decode"
    assert find_part("json.decoder:JSONDecoder#parse_float") == "parse_float"
    assert find_part("json:dumps#indent") == "indent"
    assert find_part("json.decoder").__name__ == "json.decoder"


@pytest.mark.parametrize(
    "path", ["json.coder", "json:dump_s", "json:JSONDecoder#floats", "json:dumps#width"]
)
def test_a_part_that_is_not_there_is_named_with_the_version(path: str) -> None:
    with pytest.raises(MissingPartError):
        find_part(path)
    shown = path.replace(":", ".").replace("#", ".")
    assert find_missing(["json:dumps", path]) == f"json 2.0.9 has no {shown}"
