"""More threads than cores inside the workers."""

from fuelline.fix.remedies import threads
from fuelline.schema.diagnosis.facts import CoreFacts, Facts, InputFacts
from tests.unit.fix.remedies.situations import facts, reading


def crowded(cores: float, queued: float, others: float = 0.0, ranks: int = 1) -> Facts:
    return facts(
        cores=CoreFacts(allowed=reading(cores), others=reading(others), ranks=ranks),
        input=InputFacts(exposed_share=reading(0.3), core_wait_share=reading(queued)),
    )


def test_few_workers_that_wait_for_cores_point_to_threads() -> None:
    remedy = threads.propose(crowded(8, 0.5))
    assert remedy is not None
    assert "OMP_NUM_THREADS=1" in remedy.setting


def test_more_workers_than_cores_need_no_threads_to_explain_it() -> None:
    assert threads.propose(crowded(1, 0.5)) is None
    assert threads.propose(crowded(8, 0.1)) is None
    assert threads.propose(facts()) is None


def test_cores_that_other_processes_or_ranks_fill_need_no_threads_to_explain_it() -> None:
    assert threads.propose(crowded(8, 0.5, others=4.0)) is None
    assert threads.propose(crowded(8, 0.5, ranks=8)) is None
