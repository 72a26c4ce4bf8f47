"""What all tests share: property tests are repeatable and never judged by the clock.

Where torch is missing (`make pythons`), a module that imports it is skipped as a whole, and so is
every test that is marked `torch`: its job imports it, or the command that it gives.
"""

import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

for profile, examples in (("fuelline", 60), ("quick", 10)):  # the latter is `make test-quick`
    settings.register_profile(
        profile,
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fuelline"))


HAS_TORCH = importlib.util.find_spec("torch") is not None


class _Module(pytest.Module):
    def _getobj(self) -> object:
        try:
            return super()._getobj()  # type: ignore[no-untyped-call]
        except self.CollectError as error:
            if "No module named 'torch" not in str(error):
                raise
            return pytest.skip("needs torch", allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    return None if HAS_TORCH else _Module.from_parent(parent, path=module_path)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if not HAS_TORCH and item.get_closest_marker("torch"):
        pytest.skip("needs torch")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty run store of the test's own; returns the folder that `FUELLINE_HOME` names."""
    home = tmp_path / "home"
    monkeypatch.setenv("FUELLINE_HOME", str(home))
    return home


@pytest.fixture(autouse=True, scope="session")
def nobodys_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What whoever runs the tests has set or kept must not count, and nothing is added to it."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def process() -> Iterator[None]:
    """Commands are called in a process that goes on.

    `fuelline run` ends with signals held back, `fuelline import` keeps those that it starts from
    looking for modules in the working directory.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.environ.pop("PYTHONSAFEPATH", None)
