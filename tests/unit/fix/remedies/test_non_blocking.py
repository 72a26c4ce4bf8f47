"""Copies that the host waits for."""

from fuelline.fix.remedies import non_blocking
from tests.unit.fix.remedies.situations import copies, facts


def test_copies_that_wait_are_named_and_never_applied() -> None:
    remedy = non_blocking.propose(copies(blocking=0.9))
    assert remedy is not None
    assert remedy.applicability == "unsafe"


def test_without_waiting_copies_or_knowledge_of_them_nothing_is_said() -> None:
    assert non_blocking.propose(copies(blocking=0.1)) is None
    assert non_blocking.propose(copies(blocking=0.9, share=0.01)) is None
    assert non_blocking.propose(facts()) is None
