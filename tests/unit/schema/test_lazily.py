"""Rooms that load their files when asked: every name they promise is there, and no other."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

ROOMS = ("fuelline.ingest", "fuelline.pipeline", "fuelline.signals")


@pytest.mark.parametrize("room", ROOMS)
def test_every_promised_name_is_found_where_it_is_said_to_live(room: str) -> None:
    module = import_module(room)
    for name in module.__all__:
        assert getattr(module, name).__name__ == name


@pytest.mark.parametrize("room", ROOMS)
def test_a_name_that_nobody_promised_is_no_attribute(room: str) -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = import_module(room).nonsense


def test_importing_a_trace_loads_no_report_and_no_model() -> None:
    code = (
        "import sys; from fuelline.pipeline import import_files; "
        "print([m for m in sys.modules if m in ('rich', 'fuelline.report', 'fuelline.whatif')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
