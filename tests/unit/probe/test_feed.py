"""A torch without one of the private parts that `feed` uses: no loader is taken."""

import json
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from fuelline.probe import feed
from fuelline.schema.seams import find_missing


@pytest.mark.parametrize("path", feed.PARTS)
def test_the_part_is_named_and_the_loader_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    def leave(_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(feed, "leave_job", leave)
    monkeypatch.setattr(feed, "PARTS", (f"{path}_of_before",))
    before = DataLoader.__iter__
    plan = tmp_path / "plan"
    plan.write_text(json.dumps({"folder": str(tmp_path), "loader": None}))
    with pytest.raises(SystemExit):
        feed.install(str(plan))
    (account,) = (json.loads(each.read_bytes()) for each in tmp_path.glob("feed-*.json"))
    shown = path.replace(":", ".")
    assert account["problem"] == f"torch {torch.__version__} has no {shown}_of_before"
    assert DataLoader.__iter__ is before


def test_this_torch_has_everything() -> None:
    assert find_missing(feed.PARTS) == ""
