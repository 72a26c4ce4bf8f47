"""An optimizer that could be fused."""

from fuelline.fix.remedies import optimizer
from fuelline.schema.diagnosis.facts import ComputeFacts, Facts
from fuelline.schema.diagnosis.findings import BudgetPart
from tests.unit.fix.remedies.situations import facts


def stepping(share: float, kernel: str = "_single_tensor_adam") -> Facts:
    return facts(
        budget=[
            BudgetPart(part="forward", seconds=10 * (1 - share), share=1 - share),
            BudgetPart(part="optimizer", seconds=10 * share, share=share),
        ],
        compute=ComputeFacts(optimizer_kernel=kernel),
    )


def test_much_time_in_adam_is_named_with_its_share_and_never_applied() -> None:
    remedy = optimizer.propose(stepping(0.42))
    assert remedy is not None
    assert "fused=True" in remedy.setting
    assert "42 %" in remedy.why
    assert remedy.applicability == "unsafe"
    assert remedy.at_most_speedup is not None
    assert 1.7 < remedy.at_most_speedup < 1.8


def test_a_short_step_a_fused_one_and_an_optimizer_without_one_are_left_alone() -> None:
    assert optimizer.propose(stepping(0.1)) is None
    assert optimizer.propose(stepping(0.42, "_fused_adam")) is None
    assert optimizer.propose(stepping(0.42, "_single_tensor_rmsprop")) is None
    assert optimizer.propose(stepping(0.42, "")) is None
