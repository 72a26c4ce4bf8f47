"""What of a step would stay if the batch were empty."""

import pytest

from fuelline.schema.readings import Missing, Reading
from fuelline.signals.recorded.compute import _crowded_share
from tests.unit.builders import MS, START_NS, TRAINER, Lane, facts_of, make_timeline


def epochs(fixed_ms: float, per_sample_ms: float, *, last: int = 4, epochs: int = 5) -> Lane:
    """Epochs of six batches of 16 and a smaller last one."""
    lane = Lane()
    for _ in range(epochs):
        for samples in (*(16,) * 6, last):
            lane.batch(2, samples=samples).gap(1).backward(fixed_ms + per_sample_ms * samples - 2)
            lane.optimizer(1)
        lane.epoch_end(1)
    return lane


def compute_of(lane: Lane):
    return facts_of(make_timeline(lane)).compute


def test_a_step_that_costs_the_same_for_any_batch_is_all_fixed() -> None:
    assert compute_of(epochs(20, 0)).fixed_share.value == pytest.approx(1)


def test_a_step_in_proportion_to_its_batch_has_no_fixed_cost() -> None:
    assert compute_of(epochs(0, 3)).fixed_share.value == pytest.approx(0, abs=0.01)


def test_half_fixed_is_measured_as_half() -> None:
    assert compute_of(epochs(16, 1)).fixed_share.value == pytest.approx(0.5)


def test_the_fixed_share_does_not_follow_a_few_slow_steps() -> None:
    lane = epochs(16, 1)
    lane.batch(2, samples=16).gap(1).backward(5000).optimizer(1)
    assert compute_of(lane).fixed_share.value == pytest.approx(0.5, abs=0.05)


def test_two_smaller_batches_among_steps_that_differ_widely_tell_nothing() -> None:
    lane = Lane()
    for number in range(60):
        samples = 8 if number % 30 == 29 else 32
        lane.batch(2, samples=samples).gap(1).backward((90, 190, 320)[number % 3]).optimizer(1)
    share = compute_of(lane).fixed_share
    assert share.value == 1
    assert share.low == 0


def test_steps_that_are_alike_make_the_fixed_share_sure() -> None:
    share = compute_of(epochs(16, 1)).fixed_share
    assert share.low == pytest.approx(0.5, abs=0.02)


def test_equal_batches_give_no_fixed_share() -> None:
    assert isinstance(compute_of(epochs(16, 1, last=16)).fixed_share, Missing)


def test_one_smaller_batch_is_not_enough() -> None:
    assert isinstance(compute_of(epochs(16, 1, epochs=1)).fixed_share, Missing)


def test_the_usual_batch_is_what_a_loader_gives_however_many_of_them_make_a_step() -> None:
    lane = Lane()
    for _ in range(6):
        lane.batch(2, samples=8).gap(1).backward(9).batch(2, samples=8).gap(1).backward(9)
        lane.optimizer(1)
    assert compute_of(lane).batch_samples.value == 8


def test_passes_over_pieces_of_a_batch_are_counted() -> None:
    lane = Lane()
    for _ in range(6):
        lane.batch(2, samples=32)
        for _ in range(8):
            lane.backward(9).optimizer(1)
    found = compute_of(lane)
    assert found.batch_samples.value == 32
    assert found.passes_per_batch.value == pytest.approx(8, rel=0.2)


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_smaller_last_batch_is_compared_with_its_own_step_also_when_fetched_ahead(
    ahead: int,
) -> None:
    lane, sizes = Lane(), (*(16,) * 6, 4)
    for _ in range(5):
        for samples in sizes[:ahead]:
            lane.batch(2, samples=samples)
        for number, samples in enumerate(sizes):
            for fetched in sizes[number + ahead : number + ahead + 1]:
                lane.batch(2, samples=fetched)
            lane.gap(1).backward(3 * samples - 2).optimizer(1)
        lane.epoch_end(1)
    assert compute_of(lane).fixed_share.value == pytest.approx(0, abs=0.01)


def test_batches_that_never_match_the_backward_passes_count_for_the_step_they_came_in() -> None:
    lane = Lane()
    for _ in range(5):
        for samples in (*(16,) * 6, 4):
            lane.batch(2, samples=samples).gap(1).backward(9).gap(1).backward(9).optimizer(1)
        lane.epoch_end(1)
    assert compute_of(lane).fixed_share.value == pytest.approx(1)


def test_operators_and_their_time_come_from_the_backward_passes_that_were_counted() -> None:
    lane = Lane().step()
    for step in range(10):
        lane.batch(2).gap(4).backward(6, nodes=100 if step % 5 == 0 else 0).optimizer(1)
    compute = compute_of(lane)
    assert compute.graph_nodes.value == 100
    assert compute.node_seconds.value == pytest.approx(100e-6)


def test_dispatch_share_is_optimizer_and_operator_floor_and_never_more_than_all() -> None:
    lane = Lane().step()
    for _ in range(10):
        lane.batch(2).backward(8, nodes=10_000).optimizer(2)
    assert compute_of(lane).dispatch_share.value == pytest.approx(1)


def test_an_uncounted_graph_gives_no_dispatch_share() -> None:
    compute = compute_of(Lane().step().step().step())
    assert isinstance(compute.graph_nodes, Missing)
    assert isinstance(compute.dispatch_share, Missing)
    assert isinstance(compute.node_seconds, Missing)


def test_compute_share_is_the_step_without_waiting() -> None:
    lane = Lane()
    for _ in range(10):
        lane.step(wait=50, forward=20, backward=20, opt=10)
    assert compute_of(lane).compute_share.value == pytest.approx(0.5)


def test_host_cpu_share_is_taken_from_the_passes_whose_clock_was_read() -> None:
    # The hooks read the CPU clock at every fourth call only; -1 is unknown, not zero.
    lane = Lane().step()
    for step in range(20):
        lane.batch(2).gap(1).backward(10, cpu_ns=8 * MS if step % 4 == 0 else -1).optimizer(1)
    assert compute_of(lane).host_cpu_share.value == pytest.approx(0.8)


def test_host_cpu_share_is_missing_when_no_clock_was_read() -> None:
    lane = Lane().step()
    for _ in range(20):
        lane.batch(2).gap(1).backward(10, cpu_ns=-1).optimizer(1)
    assert isinstance(compute_of(lane).host_cpu_share, Missing)


def waited_for(lane: Lane):
    """The compute of a lane whose loop waits for the device, as stack samples show."""
    stack = ["main (/job/train.py:30)", "item (/job/train.py:40)"]
    rows = [(START_NS, lane.now_ns, TRAINER, TRAINER, stack, 100)]
    sources = {"/job/train.py:40": "value = loss.item()"}
    return facts_of(make_timeline(lane, stacks=rows, facts={"source_lines": sources})).compute


def test_the_wait_for_the_device_after_a_step_is_part_of_that_steps_compute() -> None:
    lane = Lane()
    for _ in range(5):
        for samples in (*(16,) * 6, 8):
            lane.batch(2, samples=samples).gap(1).backward(1).optimizer(1).gap(2 * samples)
        lane.epoch_end(1)
    compute = waited_for(lane)
    assert compute.fixed_share.value < 0.2
    assert compute.compute_share.value > 0.8


def test_waiting_for_several_steps_at_once_tells_nothing_of_the_size_of_one() -> None:
    lane = Lane()
    for _ in range(10):
        for samples in (*(16,) * 9, 8):
            lane.batch(2, samples=samples).gap(1).backward(1).optimizer(1)
        lane.gap(300).epoch_end(1)
    assert isinstance(waited_for(lane).fixed_share, Missing)


def test_operators_are_dearer_on_a_slow_core() -> None:
    def dispatch_share(spin_us: int) -> float:
        lane = Lane()
        for _ in range(20):
            lane.batch(1).gap(4).backward(6, nodes=300, cpu_ns=6 * MS).optimizer(0)
        spins = [(lane.now_ns - MS, "core.spin_ns", spin_us * 1000)]
        return facts_of(make_timeline(lane, host=spins)).compute.dispatch_share.value

    assert dispatch_share(200) == pytest.approx(2 * dispatch_share(100))


def test_batches_of_one_sample_say_nothing_of_what_a_larger_one_would_cost() -> None:
    lane = Lane()
    for _ in range(30):
        lane.batch(2, samples=1).gap(1).backward(5).optimizer(1)
    share = compute_of(lane).fixed_share
    assert isinstance(share, Missing)
    assert share.reason == "all batches had one sample"


def test_the_way_of_updating_weights_is_the_one_that_most_stack_samples_show() -> None:
    lane = epochs(16, 1)
    step = "step (/site-packages/torch/optim/adam.py:250)"
    rows = [
        (START_NS, lane.now_ns, TRAINER, TRAINER, [step, f"{name} (/x/torch/optim/adam.py:3)"], n)
        for name, n in (("_single_tensor_adam", 9), ("_multi_tensor_adam", 40))
    ]
    assert facts_of(make_timeline(lane, stacks=rows)).compute.optimizer_kernel == (
        "_multi_tensor_adam"
    )


@pytest.mark.parametrize(
    ("ran", "paced", "crowded"), [(1.0, 0.5, 0.0), (0.7, 0.5, 0.24), (0.2, 0.3, 0.3)]
)
def test_a_device_that_waits_for_a_host_without_a_core_would_not_if_that_had_one(
    ran: float, paced: float, crowded: float
) -> None:
    """The host's calls take 80 % of the time, and need a core for so much of that."""
    told = _crowded_share(Reading(value=paced, unit="frac"), Reading(value=0.8, unit="frac"), ran)
    assert told.value == pytest.approx(crowded)


def test_without_a_device_clock_nobody_knows_what_it_waits_for() -> None:
    told = _crowded_share(Missing(reason="no clock"), Reading(value=0.8, unit="frac"), 0.5)
    assert isinstance(told, Missing)
