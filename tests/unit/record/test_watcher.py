"""Two watchers of one module, as the recorder's and that of `--fix`."""

import sys
from pathlib import Path
from typing import Any

import pytest

SITE = Path(__file__).parents[3] / "src" / "fuelline" / "record" / "hooks" / "site"


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SITE))
    import fuelline_watch

    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    return fuelline_watch


def test_each_of_two_watchers_acts_once(
    watching: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "watched_twice.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    acted: list[tuple[str, bool]] = []
    for name in ("first", "second"):
        watcher = watching.Watcher(str(tmp_path))
        sys.meta_path.insert(0, watcher)
        watcher.watch(
            "watched_twice",
            lambda name=name: acted.append((name, hasattr(sys.modules["watched_twice"], "VALUE"))),
        )
    import watched_twice  # type: ignore[import-not-found]

    monkeypatch.delitem(sys.modules, "watched_twice")
    assert watched_twice.VALUE == 1
    assert acted == [("first", True), ("second", True)]
