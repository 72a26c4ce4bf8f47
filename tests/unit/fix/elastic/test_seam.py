"""A torch without one of the private parts that the elastic loader is made of."""

import ast
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, dataloader

from fuelline.fix.elastic import entry, seam
from fuelline.fix.tune.outcomes import summarise_fixes
from fuelline.ingest.recording.folder import read_fixes
from fuelline.schema.seams import find_missing

SOURCES = Path(entry.__file__).parent
OWN = {"_fl_", "__"}
ELSEWHERE = {"_getframe", "_inst", "_rand", "_bit_generator", "_worker_info"}
"""Of Python and numpy; and the one that seam.py itself sets."""


@pytest.fixture(autouse=True)
def front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "_FRONT", entry._ProcessRegistry())
    monkeypatch.setattr(DataLoader, "_get_iterator", DataLoader._get_iterator)  # put back


def run(tmp_path: Path) -> tuple[list[int], list[str]]:
    """The batches of a loader under --fix, and what the report says of it."""
    entry.install(str(tmp_path), "safe")
    loader = DataLoader(range(6), num_workers=1)  # type: ignore[arg-type]
    taken = [int(batch) for batch in loader]
    return taken, [note for each in summarise_fixes(read_fixes(tmp_path)) for note in each.notes]


@pytest.mark.parametrize("path", seam.list_paths())
def test_every_loader_is_left_alone_and_the_report_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    paths = [f"{each}_of_before" if each == path else each for each in seam.list_paths()]
    monkeypatch.setattr(entry, "list_paths", lambda: paths)
    taken, notes = run(tmp_path)
    assert taken == list(range(6))
    shown = path.replace(":", ".").replace("#", ".")
    assert notes == [f"Left alone: torch {torch.__version__} has no {shown}_of_before."]


def test_a_part_that_is_really_gone_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(dataloader, "_InfiniteConstantSampler")
    taken, notes = run(tmp_path)
    assert taken == list(range(6))
    assert "_InfiniteConstantSampler" in notes[0]


def test_without_the_method_to_replace_nothing_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(DataLoader, "_get_iterator")
    entry.install(str(tmp_path), "safe")
    ((left,),) = [summarise_fixes(read_fixes(tmp_path))]
    assert "DataLoader._get_iterator" in left.notes[0]


def test_what_fails_while_it_is_loaded_is_told_and_never_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuelline.fix.elastic.registry.open_registry", None)
    taken, notes = run(tmp_path)
    assert taken == list(range(6))
    assert "TypeError" in notes[0]


def test_this_torch_has_everything() -> None:
    assert find_missing(seam.list_paths()) == ""


def _is_foreign(name: str) -> bool:
    return name.startswith("_") and not name.startswith(tuple(OWN)) and name not in ELSEWHERE


@pytest.mark.parametrize("file", sorted(SOURCES.glob("*.py")), ids=lambda file: file.stem)
def test_no_private_attribute_of_another_object_is_missing_from_the_seam(file: Path) -> None:
    """What a class sets itself, somewhere in the file, is its own."""
    listed = {name for names in seam.ATTRIBUTES.values() for name in names}
    tree = ast.parse(file.read_text(encoding="utf-8"))
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    plain = [each for each in classes if not any(ast.unparse(b) == "_plain" for b in each.bases)]
    own = {node for each in plain for node in ast.walk(each) if _is_self(node)}
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node not in own and _is_foreign(node.attr)
    }
    assert used <= listed


def _is_self(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in {"self", "cls"}
    )
