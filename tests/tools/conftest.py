"""A run that was recorded, and other people's tools: `make tools`. Elsewhere these are skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.serving import Home

if TYPE_CHECKING:
    from pathlib import Path

    from _pytest.config import Config
    from _pytest.nodes import Item


def pytest_collection_modifyitems(config: Config, items: list[Item]) -> None:
    """All of them start processes; and these libraries warn of themselves."""
    for item in items:
        if "tests/tools" in item.path.as_posix():
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.torch)
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, Path]:
    """The store, and the one run in it."""
    home = Home(tmp_path_factory.mktemp("store"))
    assert home.train(60).wait(120) == 0
    (run,) = (home.folder / "home" / "runs").iterdir()
    return home, run
