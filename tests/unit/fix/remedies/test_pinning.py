"""Copies from memory that is not pinned."""

import msgspec

from fuelline.fix.remedies import pinning
from tests.unit.fix.remedies.situations import LOADER, copies, facts


def test_pageable_copies_are_named() -> None:
    remedy = pinning.propose(copies(pageable=0.9))
    assert remedy is not None
    assert "pin_memory=True" in remedy.setting


def test_a_loader_that_pins_and_an_unknown_device_are_left_alone() -> None:
    loader = msgspec.structs.replace(LOADER, pin_memory=True)
    assert pinning.propose(msgspec.structs.replace(copies(pageable=0.9), loader=loader)) is None
    assert pinning.propose(facts()) is None
