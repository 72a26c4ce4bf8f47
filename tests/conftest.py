"""What all tests share: property tests are repeatable and never judged by the clock."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "fuelline", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fuelline"))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty run store of the test's own; returns the folder that `FUELLINE_HOME` names."""
    home = tmp_path / "home"
    monkeypatch.setenv("FUELLINE_HOME", str(home))
    return home


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """`fuelline run` ends with signals held back; here it is called in a process that goes on."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
