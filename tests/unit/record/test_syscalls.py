"""The system call tables: complete in themselves, and equal to the headers of this machine."""

import os
import re
from pathlib import Path

import pytest

from fuelline.record.samplers.syscalls import HERE, Shape, SystemCall, table_for

HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")


@pytest.mark.parametrize(
    ("machine", "number", "call"),
    [
        ("x86_64", 0, SystemCall("read", Shape.READ_FD)),
        ("x86_64", 7, SystemCall("poll", Shape.POLL)),
        ("x86_64", 257, SystemCall("openat", Shape.META_AT)),
        ("aarch64", 63, SystemCall("read", Shape.READ_FD)),
        ("aarch64", 56, SystemCall("openat", Shape.META_AT)),
        ("aarch64", 98, SystemCall("futex", Shape.LOCK)),
    ],
)
def test_well_known_numbers_have_their_names(machine: str, number: int, call: SystemCall) -> None:
    assert table_for(machine)[number] == call


def test_no_name_appears_under_two_numbers() -> None:
    for machine in ("x86_64", "aarch64"):
        names = [call.name for call in table_for(machine).values()]
        assert len(names) == len(set(names))


def test_an_unknown_architecture_has_no_table_rather_than_a_wrong_one() -> None:
    assert table_for("sparc64") == {}


@pytest.mark.skipif(os.uname().machine != "x86_64" or not HEADER.exists(), reason="no header here")
def test_numbers_agree_with_the_kernel_header() -> None:
    pairs = re.findall(r"#define __NR_(\w+) (\d+)", HEADER.read_text())
    official = {name: int(number) for name, number in pairs}
    known = {call.name: number for number, call in HERE.items() if call.name in official}
    assert known == {name: official[name] for name in known}
    assert len(known) > 100
