"""What a probe says of a disk for `whatif --storage probe.json`."""

import pytest

from fuelline.cli.probe import _summarise
from fuelline.schema.ceilings import Ceiling
from fuelline.schema.readings import Missing, Reading, Signal


def disk(alone: float, crowd: float | None) -> list[Ceiling]:
    crowded: Signal = Missing(reason="no") if crowd is None else Reading(value=crowd, unit="1/s")
    return [
        Ceiling(group="storage", name=name, what=name, signal=signal)
        for name, signal in (
            ("sequential_read_cold", Reading(value=2e8, unit="bytes/s")),
            ("random_4k_cold_1", Reading(value=alone, unit="1/s")),
            ("random_4k_cold_16", crowded),
        )
    ]


@pytest.mark.parametrize(
    ("crowd", "at_once"), [(100.0, 1), (400.0, 4), (1600.0, None), (50.0, 1), (None, None)]
)
def test_a_disk_that_16_requests_fill_has_a_most(crowd: float | None, at_once: int | None) -> None:
    found = _summarise(disk(100.0, crowd), "ext4")
    assert found is not None
    assert found.requests_at_once == at_once
    assert found.request_seconds == pytest.approx(0.01)
