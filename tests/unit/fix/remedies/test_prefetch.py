"""Uneven fetches through a short queue."""

from fuelline.fix.remedies import prefetch
from fuelline.schema.diagnosis.demands import DemandFacts
from fuelline.schema.diagnosis.facts import Facts, InputFacts
from tests.unit.fix.remedies.situations import facts, reading


def uneven(
    *, wait: float = 0.2, busy: float = 0.5, spread: float = 1.0, queued: float = 0.0
) -> Facts:
    return facts(
        input=InputFacts(wait_share=reading(wait), core_wait_share=reading(queued)),
        demands=DemandFacts(busy_frac=reading(busy), fetch_spread=reading(spread)),
    )


def test_uneven_fetches_ask_for_a_longer_queue() -> None:
    remedy = prefetch.propose(uneven())
    assert remedy is not None
    assert "prefetch_factor=4" in remedy.setting


def test_busy_workers_even_fetches_and_a_fed_training_do_not() -> None:
    for quiet in (uneven(busy=0.95), uneven(spread=0.1), uneven(wait=0.0), facts()):
        assert prefetch.propose(quiet) is None


def test_fetches_that_wait_for_a_core_are_uneven_for_that_reason() -> None:
    assert prefetch.propose(uneven(queued=0.73)) is None
