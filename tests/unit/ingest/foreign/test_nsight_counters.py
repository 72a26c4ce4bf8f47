"""Counters that Nsight sampled are rungs of the ladder; what is no percentage is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fuelline.ingest.nsight import Nsight
from fuelline.schema.readings import Missing, Reading
from fuelline.signals.traced import measure_trace
from tests.unit.ingest.foreign.nsight_maker import make
from tests.unit.ingest.foreign.reading import Read, read

if TYPE_CHECKING:
    from pathlib import Path

FIRST, SECOND = 0xAB00, 0xAB01
"""Of devices 0 and 1."""
NAMES = (
    "typeId INTEGER, metricId INTEGER, metricName TEXT",
    [
        (kind, metric, name)
        for kind in (FIRST, SECOND)
        for metric, name in (
            (7, "SMs Active [Throughput %]"),
            (8, "Tensor Active [Throughput %]"),
            (9, "DRAM Read Bandwidth [Throughput %]"),
        )
    ],
)
COLUMNS = "timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER"


def export(folder: Path, rows: list[tuple[Any, ...]]) -> Read:
    tables = {"TARGET_INFO_GPU_METRICS": NAMES, "GPU_METRICS": (COLUMNS, rows)}
    return read(Nsight(), make(folder / "a", **tables))


def test_sampled_sms_and_tensor_cores_take_the_place_of_estimates(tmp_path: Path) -> None:
    rows = [
        (100 + 10 * place, FIRST, metric, value + place % 2)
        for place in range(14)
        for metric, value in ((7, 40), (8, 10), (9, 77))
    ]
    before = [(place, FIRST, 7, 100) for place in range(50)]
    facts = measure_trace(export(tmp_path, [*before, *rows]).trace).facts
    device = facts.devices[0]
    fill, tensor = device.share_of("SM fill"), device.share_of("tensor-core kernels")
    assert isinstance(fill, Reading)
    assert isinstance(tensor, Reading)
    assert (fill.value, tensor.value) == (pytest.approx(0.405), pytest.approx(0.105))
    assert fill.count == 14
    assert "sampled" in fill.origin
    assert isinstance(facts.devices[1].share_of("SM fill"), Missing)


def test_what_is_no_percentage_is_left_out(tmp_path: Path) -> None:
    rows = [(150, FIRST, 7, 400), (151, FIRST, 7, "x"), (None, FIRST, 7, 5), (152, FIRST, 7, 30)]
    counters = export(tmp_path, rows).table("counters")
    assert counters.select("device", "at_ns", "name", "value").rows() == [
        (0, 152, "gpm.sm_frac", 0.3)
    ]
