"""Small reads of a disk."""

from fuelline.fix.remedies import readahead
from tests.unit.fix.remedies.situations import blocked_in_reads, facts


def test_small_reads_of_a_disk_are_named_and_only_shown() -> None:
    remedy = readahead.propose(blocked_in_reads(16 * 1024))
    assert remedy is not None
    assert remedy.applicability == "display"
    assert "/dev/sda1" in remedy.setting


def test_large_reads_and_network_mounts_are_left_alone() -> None:
    assert readahead.propose(blocked_in_reads(1 << 20)) is None
    assert readahead.propose(blocked_in_reads(16 * 1024, device="server:/data")) is None
    assert readahead.propose(facts()) is None
