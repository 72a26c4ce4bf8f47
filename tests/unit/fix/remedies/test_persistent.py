"""Workers that are started anew with every epoch."""

import msgspec

from fuelline.fix.remedies import persistent
from fuelline.schema.diagnosis.findings import BudgetPart
from tests.unit.fix.remedies.situations import LOADER, facts

SHORT_EPOCHS = [
    BudgetPart(part="forward", seconds=8.0, share=0.8),
    BudgetPart(part="epoch start", seconds=2.0, share=0.2),
]


def test_starting_workers_each_epoch_is_named_with_its_share() -> None:
    remedy = persistent.propose(facts(budget=SHORT_EPOCHS))
    assert remedy is not None
    assert "20 %" in remedy.why


def test_workers_that_live_on_already_are_left_alone() -> None:
    loader = msgspec.structs.replace(LOADER, persistent_workers=True)
    assert persistent.propose(facts(budget=SHORT_EPOCHS, loader=loader)) is None
    assert persistent.propose(facts()) is None


def test_the_end_of_the_only_epoch_is_no_start() -> None:
    once = facts(budget=SHORT_EPOCHS)
    demands = msgspec.structs.replace(once.demands, pause_counts={"epoch start": 0})
    assert persistent.propose(msgspec.structs.replace(once, demands=demands)) is None
