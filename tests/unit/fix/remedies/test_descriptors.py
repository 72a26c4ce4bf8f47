"""Very many batches under way may run out of descriptors."""

import msgspec

from fuelline.fix.remedies import descriptors
from tests.unit.fix.remedies.situations import LOADER, facts


def test_many_batches_under_way_are_named() -> None:
    loader = msgspec.structs.replace(LOADER, num_workers=64, prefetch_factor=8)
    remedy = descriptors.propose(facts(loader=loader))
    assert remedy is not None
    assert "file_system" in remedy.setting
    assert "512 batches" in remedy.why


def test_a_usual_loader_is_left_alone() -> None:
    assert descriptors.propose(facts()) is None
    assert descriptors.propose(facts(loader=None)) is None
