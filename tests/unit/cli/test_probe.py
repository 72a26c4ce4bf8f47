"""What a probe says of a disk for `whatif --storage probe.json`."""

import argparse
import os
from pathlib import Path

import pytest

from fuelline.cli.understand.probe import PORT, _address, _find_mount, _own_address, _summarise
from fuelline.schema.diagnosis.ceilings import Ceiling
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


def test_a_mount_whose_name_is_no_utf_8_is_found(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    line = b"27 1 254:0 / %s rw - ext4 /dev/vda rw\n" % os.fsencode(folder)
    (tmp_path / "mountinfo").write_bytes(line)
    assert _find_mount(folder, tmp_path / "mountinfo") == (str(folder), "ext4")


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("node2", ("node2", PORT)),
        ("node2.example.org:7000", ("node2.example.org", 7000)),
        ("10.0.0.7:7000", ("10.0.0.7", 7000)),
        ("::1", ("::1", PORT)),
        ("[::1]:7000", ("::1", 7000)),
        ("[::1]", ("::1", PORT)),
        ("::ffff:10.0.0.7", ("::ffff:10.0.0.7", PORT)),
        ("fe80::1%eth0", ("fe80::1%eth0", PORT)),
        ("[fe80::1%eth0]:7000", ("fe80::1%eth0", 7000)),
    ],
)
def test_an_address_may_have_a_port_in_either_family(word: str, found: tuple[str, int]) -> None:
    assert _address(word) == found
    assert _own_address(word) == found


def test_a_port_alone_is_served_to_this_host_alone() -> None:
    assert _own_address("7000") == ("127.0.0.1", 7000)


@pytest.mark.parametrize("word", [":7000", "", "/data", "node2:", "node2:0", "node2:99999", "0"])
def test_what_is_no_address_is_refused(word: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        _own_address(word)
