from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuelline.schema.diagnosis.comparison import RunComparison, RunSamples, RunWork
from fuelline.signals.changes import compare_samples, compare_sides
from fuelline.signals.power import count_recordings


def run(
    input_s: list[float],
    compute_s: list[float],
    *,
    is_stepped: bool = True,
    ranks: int = 1,
    kernels: dict[str, list[float]] | None = None,
) -> RunSamples:
    return RunSamples(
        label="run",
        kind="recorded",
        steps=[one + other for one, other in zip(input_s, compute_s, strict=True)],
        is_stepped=is_stepped,
        parts={"input": input_s, "forward": compute_s},
        kernels=kernels or {},
        ranks=ranks,
    )


def noisy(mean: float, count: int = 100, share: float = 0.05, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    return [chance.gauss(mean, share * mean) for _ in range(count)]


def part(comparison: RunComparison, name: str):  # type: ignore[no-untyped-def]
    return next(each for each in comparison.parts if each.name == name)


def test_a_longer_part_is_named_and_the_others_are_the_same() -> None:
    before = run(noisy(0.010, seed=1), noisy(0.1, seed=2))
    after = run(noisy(0.030, seed=3), noisy(0.1, seed=4))
    comparison = compare_samples(before, after)
    assert comparison.step.judgement == "slower"
    assert comparison.step.share == pytest.approx(0.02 / 0.11, abs=0.02)
    assert comparison.parts[0].name == "input"
    assert part(comparison, "input").judgement == "slower"
    assert part(comparison, "forward").judgement == "same"
    low, high = part(comparison, "input").low, part(comparison, "input").high
    assert low < 0.02 < high


def test_the_same_job_twice_is_the_same_nearly_always() -> None:
    """A 95 % interval may be wrong once in twenty; the hundredth of a step makes it rarer."""
    verdicts = [
        compare_samples(
            run(noisy(0.01, seed=seed), noisy(0.1, seed=seed + 1000)),
            run(noisy(0.01, seed=seed + 2000), noisy(0.1, seed=seed + 3000)),
        ).step.judgement
        for seed in range(100)
    ]
    assert verdicts.count("same") >= 92


def test_neighbouring_steps_that_are_alike_do_not_make_noise_look_small() -> None:
    """A slow drift within each run: single steps are many, independent ones are few."""
    waves = [0.1 + 0.02 * (place // 25 % 2) for place in range(100)]
    moved = waves[12:] + waves[:12]
    comparison = compare_samples(run([0.0] * 100, waves), run([0.0] * 100, moved[:90] + moved[:10]))
    assert comparison.step.judgement == "same"


def test_one_step_tells_no_noise() -> None:
    comparison = compare_samples(run([0.1], [0.1]), run([0.2], [0.1]))
    assert comparison.step.judgement == "cannot tell"
    assert comparison.step.low is None
    assert any("single step" in note for note in comparison.notes)


def test_without_steps_totals_are_compared_and_said_so() -> None:
    comparison = compare_samples(run([0.1, 0.1], [0.1, 0.1]), run([0.5], [0.5], is_stepped=False))
    assert comparison.unit == "run"
    assert comparison.step.before == pytest.approx(0.4)
    assert any("totals" in note for note in comparison.notes)


@pytest.mark.parametrize(
    ("after_s", "threshold", "is_over"),
    [(0.13, 0.05, True), (0.13, 0.5, False), (0.1, 0.0, False), (0.05, 0.05, False)],
)
def test_over_the_threshold_means_longer_by_more_and_beyond_noise(
    after_s: float, threshold: float, is_over: bool
) -> None:
    comparison = compare_samples(
        run([0.0] * 50, noisy(0.1, 50, seed=1)),
        run([0.0] * 50, noisy(after_s, 50, seed=1)),
        threshold,
    )
    assert comparison.is_over == is_over


def test_a_change_within_wide_noise_is_not_over_whatever_the_threshold() -> None:
    before = run([0.0] * 4, [0.05, 0.2, 0.05, 0.2])
    after = run([0.0] * 4, [0.1, 0.2, 0.1, 0.2])
    comparison = compare_samples(before, after, 0.05)
    assert comparison.step.share is not None
    assert comparison.step.share > 0.05
    assert not comparison.is_over


def test_a_class_that_only_one_run_has_counts_as_zero_in_the_other() -> None:
    before = run([0.1] * 3, [0.1] * 3, kernels={"gemm": [0.1] * 3})
    after = run([0.1] * 3, [0.1] * 3, kernels={"attention": [0.05] * 3})
    changes = {change.name: change.change for change in compare_samples(before, after).kernels}
    assert changes == {"gemm": pytest.approx(-0.1), "attention": pytest.approx(0.05)}


def test_different_devices_are_noted() -> None:
    plain = run([0.1], [0.1])
    comparison = compare_samples(plain, msgspec.structs.replace(plain, devices=["H100", "H100"]))
    assert "devices: none before, 2 x H100 after" in comparison.notes


def test_different_ranks_are_noted() -> None:
    comparison = compare_samples(run([0.1], [0.1]), run([0.1], [0.1], ranks=8))
    assert "1 ranks before, 8 after" in comparison.notes


_SECONDS = st.lists(st.floats(0, 10), min_size=1, max_size=40)


def test_another_command_is_noted_unless_one_of_them_is_not_known() -> None:
    before, after = (
        msgspec.structs.replace(run([0.01] * 9, [0.1] * 9), command=["train.py", "--lr", rate])
        for rate in ("1", "2")
    )
    note = "commands: train.py --lr 1 before, train.py --lr 2 after"
    assert note in compare_samples(before, after).notes
    unknown = msgspec.structs.replace(after, command=[])
    assert not any("commands" in each for each in compare_samples(before, unknown).notes)


@given(_SECONDS, _SECONDS)
def test_parts_always_sum_to_the_step(one: list[float], other: list[float]) -> None:
    compare_samples(run(one, one), run(other, other)).check()


def epochs(first_s: float, seed: int, count: int = 11, steps: int = 17) -> RunSamples:
    """Short epochs, whose first batch is waited for by this many seconds, give or take a tenth."""
    chance = random.Random(seed)
    starts = [
        chance.gauss(first_s, 0.1 * first_s) if place % steps == 0 and place else 0.0
        for place in range(count * steps)
    ]
    usual = noisy(0.01, count * steps, seed=seed + 1)
    return msgspec.structs.replace(
        run(usual, usual),
        steps=[2 * one + other for one, other in zip(usual, starts, strict=True)],
        parts={"input": usual, "forward": usual, "epoch start": starts},
        rare={"epoch start": [each for each in starts if each]},
    )


def test_workers_that_stay_are_seen_though_only_the_first_step_of_an_epoch_gains() -> None:
    comparison = compare_samples(epochs(0.9, seed=1), epochs(0.02, seed=3))
    assert comparison.judgement == comparison.step.judgement == "faster"
    (start,) = comparison.rare
    assert (start.name, start.count_before, start.count_after) == ("epoch start", 10, 10)
    assert start.before == pytest.approx(0.9, rel=0.1)
    assert start.judgement == "faster"
    assert part(comparison, "input").judgement == "same"


def test_the_same_short_epochs_twice_are_the_same() -> None:
    verdicts = [
        compare_samples(epochs(0.9, seed), epochs(0.9, seed + 500)).judgement
        for seed in range(0, 200, 2)
    ]
    assert verdicts.count("same") == len(verdicts)


def test_one_occurrence_more_because_of_where_the_window_begins_is_no_change() -> None:
    before, after = epochs(0.9, seed=1, count=2), epochs(0.9, seed=3, count=3)
    comparison = compare_samples(before, after)
    assert (comparison.rare[0].count_before, comparison.rare[0].count_after) == (1, 2)
    assert comparison.judgement == "same"


def busy(cpu_s: float, seed: int, *, queued: float = 0.0, wall_s: float = 0.0) -> RunSamples:
    """Steps of known work that neighbours draw out: to `wall_s`, and half of them in CPU."""
    chance = random.Random(seed)
    cpu = [cpu_s * (1 + max(0.0, chance.gauss(0, 0.2))) for _ in range(200)]
    lengths = [each + queued + wall_s * chance.random() for each in cpu]
    return msgspec.structs.replace(
        run([0.0] * 200, lengths),
        work=RunWork(trainer_cpu=cpu, queued=queued + wall_s / 2),
    )


def test_a_run_beside_busy_neighbours_is_not_called_slower() -> None:
    comparison = compare_samples(busy(0.01, 1), busy(0.01, 2, queued=0.02, wall_s=0.01))
    assert comparison.step.share is not None
    assert comparison.step.share > 1
    assert comparison.judgement == "cannot tell"


def test_more_work_is_seen_by_its_cpu_time_where_neighbours_hide_it() -> None:
    before, after = busy(0.01, 1, queued=0.02, wall_s=0.01), busy(0.012, 2, queued=0.01)
    comparison = compare_samples(before, after, threshold=0.05)
    assert comparison.step.change < 0
    assert (comparison.judgement, comparison.judged_by) == ("slower", "cpu")
    assert comparison.judged.share == pytest.approx(0.2, abs=0.04)
    assert comparison.is_over
    assert not compare_samples(before, after, threshold=0.5).is_over


def test_cpu_time_that_the_length_of_steps_speaks_against_is_hidden_behind_something() -> None:
    def waiting(cpu_s: float, seed: int) -> RunSamples:
        """Steps as long as a device takes, whatever the host does meanwhile."""
        return msgspec.structs.replace(
            run([0.0] * 200, noisy(0.1, 200, 0.001, seed)),
            work=RunWork(trainer_cpu=noisy(cpu_s, 200, 0.01, seed)),
        )

    comparison = compare_samples(waiting(0.02, 1), waiting(0.05, 2))
    assert comparison.cpu is not None
    assert comparison.cpu.judgement == "slower"
    assert comparison.judgement == "same"


def test_steps_of_twice_the_batch_are_compared_for_equal_work() -> None:
    before = msgspec.structs.replace(run(noisy(0.01), noisy(0.1)), samples=32.0)
    after = msgspec.structs.replace(run(noisy(0.02, seed=5), noisy(0.2, seed=6)), samples=64.0)
    comparison = compare_samples(before, after)
    assert comparison.judgement == "same"
    assert any("32 samples before and 64 after" in note for note in comparison.notes)


def test_a_comparison_shows_itself_by_what_happened_to_the_step() -> None:
    before = run(noisy(0.01, seed=1), noisy(0.1, seed=2))
    longer = compare_samples(before, run(noisy(0.06, seed=3), noisy(0.1, seed=4)))
    assert repr(longer).startswith("<RunComparison run -> run: step slower by 4")
    assert repr(compare_samples(before, before)) == "<RunComparison run -> run: step same>"


def test_workers_whose_cpu_time_varies_make_a_comparison_less_sure() -> None:
    def fetched(spread: float) -> RunSamples:
        base = busy(0.01, 1)
        assert base.work is not None
        fetch = noisy(0.02, 200, spread, seed=9)
        return msgspec.structs.replace(
            base, work=msgspec.structs.replace(base.work, fetch_cpu=fetch, felt_frac=1.0)
        )

    steady, varied = (compare_samples(fetched(each), fetched(each)).step for each in (0.01, 0.5))
    assert steady.low is not None
    assert varied.low is not None
    assert varied.low < steady.low


OWN_PARTS = {"forward": 0.003, "backward": 0.0045, "optimizer": 0.0015, "loop": 0.0002}


def parted(
    seed: int,
    *,
    machine: float = 1.0,
    supply: float | None = 0.0005,
    ranks: int = 1,
    **factors: float,
) -> RunSamples:
    """A trainer's parts beside neighbours that hold up every third step, on a slower machine.

    The optimizer moves memory, so that a slower machine hits it half as much again.
    """
    chance = random.Random(seed)
    parts: dict[str, list[float]] = {}
    for name, seconds in OWN_PARTS.items():
        speed = machine ** (1.5 if name == "optimizer" else 1.0)
        base = seconds * speed * factors.get(name, 1.0)
        parts[name] = [
            base * (1 + abs(chance.gauss(0, 0.03)) + chance.choice([0, 0, 2]) * chance.random())
            for _ in range(300)
        ]
    parts["input"] = [0.001 * (1 + chance.random()) for _ in range(300)]
    steps = [sum(values) for values in zip(*parts.values(), strict=True)]
    cpu = [length - 0.001 for length in steps]
    return RunSamples(
        label="run",
        kind="recorded",
        steps=steps,
        is_stepped=True,
        parts=parts,
        ranks=ranks,
        work=RunWork(trainer_cpu=cpu, queued=0.004, supply=supply, disturbed_frac=1.0),
    )


@pytest.mark.parametrize("machine", [0.9, 1.0, 1.1])
@pytest.mark.parametrize(("part_name", "factor"), [("loop", 6.0), ("forward", 1.33)])
def test_a_part_that_grows_against_the_others_is_seen_on_any_machine(
    machine: float, part_name: str, factor: float
) -> None:
    after = parted(2, machine=machine, **{part_name: factor})
    comparison = compare_samples(parted(1), after, threshold=0.05)
    assert (comparison.judgement, comparison.judged_by) == ("slower", "parts")
    assert comparison.relative is not None
    assert comparison.relative.part == part_name
    assert comparison.relative.factor == pytest.approx(machine, rel=0.05)
    assert comparison.relative.low < machine * 0.001 < comparison.relative.high
    assert comparison.is_over
    assert comparison.judged is comparison.relative
    back = compare_samples(after, parted(1))
    assert (back.judgement, back.judged_by) == ("faster", "parts")


@pytest.mark.parametrize("machine", [0.8, 1.0, 1.3])
def test_parts_that_grow_alike_may_be_the_machine(machine: float) -> None:
    for seed in range(30):
        relative = compare_samples(parted(seed), parted(seed + 100, machine=machine)).relative
        assert relative is None or relative.judgement == "same"


@pytest.mark.parametrize("machine", [0.85, 1.0, 1.2])
def test_a_part_that_takes_most_of_a_step_is_held_against_all_others(machine: float) -> None:
    after = parted(2, machine=machine, backward=3.0)
    again = parted(3, backward=4.0)
    relative = compare_samples(after, again).relative
    assert relative is not None
    assert (relative.part, relative.judgement) == ("backward", "slower")
    assert relative.low < 0.0045 < relative.high


def test_a_part_that_grew_less_than_the_machine_slowed_the_others_is_not_called() -> None:
    """As likely is a machine that is as before, and others that changed."""
    after = parted(2, machine=1.4, forward=0.75)
    assert compare_samples(parted(1), after).relative is None


def test_a_part_that_grew_while_the_machine_quickened_three_others_is_seen() -> None:
    relative = compare_samples(parted(1), parted(2, machine=0.8, forward=1.4)).relative
    assert relative is not None
    assert (relative.part, relative.judgement) == ("forward", "slower")


def test_two_parts_alone_cannot_tell_which_of_them_changed() -> None:
    def of_two(seed: int, **factors: float) -> RunSamples:
        base = parted(seed, **factors)
        parts = {name: base.parts[name] for name in ("forward", "backward")}
        steps = [sum(values) for values in zip(*parts.values(), strict=True)]
        return msgspec.structs.replace(base, parts=parts, steps=steps)

    assert compare_samples(of_two(1), of_two(2, forward=1.5)).relative is None


def test_most_parts_changed_and_one_not_is_no_change_of_that_one() -> None:
    """A new layer: forward and backward grow, the optimizer does not."""
    comparison = compare_samples(parted(1), parted(2, forward=1.3, backward=1.3))
    assert comparison.relative is None


def test_own_parts_that_workers_or_other_ranks_hide_are_not_judged() -> None:
    assert compare_samples(parted(1, supply=0.02), parted(2, supply=0.02, loop=6)).relative is None
    assert compare_samples(parted(1, ranks=2), parted(2, ranks=2, loop=6)).relative is None
    assert compare_samples(parted(1, supply=None), parted(2, supply=None, loop=6)).relative


def test_batches_that_the_trainer_prepares_itself_are_a_part_of_its_own() -> None:
    def fetching(seed: int, factor: float) -> RunSamples:
        base = parted(seed, supply=0.0)
        fetched = [factor * seconds for seconds in base.parts["input"]]
        extra = [new - old for new, old in zip(fetched, base.parts["input"], strict=True)]
        return msgspec.structs.replace(
            base,
            parts={**base.parts, "input": fetched},
            steps=[one + other for one, other in zip(base.steps, extra, strict=True)],
        )

    comparison = compare_samples(fetching(1, 1.0), fetching(2, 2.0))
    assert comparison.relative is not None
    assert comparison.relative.part == "input"
    assert comparison.judgement == "slower"


def test_several_recordings_measure_how_far_two_of_the_same_job_differ() -> None:
    """All parts grow alike, by a tenth; in one pair a machine of varying speed hides it."""
    speeds = [1.0, 1.03, 0.98, 1.02, 0.97]
    befores = [parted(seed, machine=speed) for seed, speed in enumerate(speeds)]
    grown = [parted(seed + 50, machine=1.12 * speed) for seed, speed in enumerate(speeds)]
    again = [parted(seed + 90, machine=speed) for seed, speed in enumerate(reversed(speeds))]
    assert compare_samples(befores[0], grown[0]).judgement == "cannot tell"
    comparison = compare_sides(befores, grown)
    assert comparison.judgement == "slower"
    assert (comparison.before.recordings, comparison.before.steps) == (5, 1500)
    assert comparison.judged.level == 99
    assert compare_sides(befores, again).judgement == "same"
    assert compare_sides(befores, grown[:1]).before.recordings == 5


def test_two_recordings_of_one_side_are_too_few_to_tell() -> None:
    before = [parted(1), parted(2, machine=1.05)]
    assert compare_sides(before, [parted(3, machine=1.2)]).judgement == "same"


def test_what_only_one_of_several_recordings_has_counts_as_zero_in_the_others() -> None:
    one, other = epochs(0.9, seed=1), run([0.01] * 50, [0.1] * 50)
    comparison = compare_sides([one, other], [one, other])
    assert comparison.step.change == 0
    assert [each.count_before for each in comparison.rare] == [10]


@pytest.mark.parametrize(("deviation", "needed"), [(0.02, 4), (0.04, 8), (0.08, 26), (0.2, None)])
def test_recordings_that_differ_more_need_more_of_them(
    deviation: float, needed: int | None
) -> None:
    """Of each side, to see a tenth."""
    assert count_recordings([0.5, deviation]) == needed


def test_as_many_recordings_as_were_said_to_be_needed_find_a_tenth() -> None:
    chance, found = random.Random(1), 0

    def recorded(mean: float) -> RunSamples:
        return run([0.0] * 20, noisy(mean * chance.gauss(1, 0.03), 20, seed=chance.randrange(9999)))

    first = compare_sides([recorded(0.1) for _ in range(30)], [recorded(0.1) for _ in range(30)])
    needed = first.recordings_needed
    assert needed in (5, 6)
    for _ in range(100):
        before, after = ([recorded(mean) for _ in range(needed)] for mean in (0.1, 0.11))
        found += compare_sides(before, after).judgement == "slower"
    assert found >= 85


def test_a_machine_whose_speed_wanders_within_a_run_may_have_made_a_change_of_all_parts() -> None:
    """Nothing else ran in this one: the neighbour is in another virtual machine."""

    def alone(seed: int, *, wander: float, machine: float) -> RunSamples:
        base = parted(seed)
        speeds = [machine * (1 + wander * (place // 50 % 2)) for place in range(300)]
        parts = {
            name: [each * speed for each, speed in zip(values, speeds, strict=True)]
            for name, values in base.parts.items()
        }
        cpu = [0.01 * (1 + 0.002 * (place % 5)) * speed for place, speed in enumerate(speeds)]
        return msgspec.structs.replace(
            base,
            parts=parts,
            steps=[sum(values) for values in zip(*parts.values(), strict=True)],
            work=RunWork(trainer_cpu=cpu, supply=0.0005),
        )

    wandering = compare_samples(
        alone(1, wander=0.2, machine=1.0), alone(2, wander=0.2, machine=1.3)
    )
    steady = compare_samples(alone(1, wander=0.0, machine=1.0), alone(2, wander=0.0, machine=1.3))
    assert wandering.judgement == "cannot tell"
    assert steady.judgement == "slower"
    assert not msgspec.structs.replace(wandering, threshold=0.05).is_over


def test_a_part_that_was_not_there_before_is_seen() -> None:
    before = parted(1)
    none = [0.0] * len(before.steps)
    before = msgspec.structs.replace(
        before,
        parts={**before.parts, "loop": none},
        steps=[one - loop for one, loop in zip(before.steps, before.parts["loop"], strict=True)],
    )
    relative = compare_samples(before, parted(2, loop=6)).relative
    assert relative is not None
    assert (relative.part, relative.judgement) == ("loop", "slower")
    again = compare_samples(parted(2, loop=6), before).relative
    assert again is not None
    assert again.judgement == "faster"


def fed_by_workers(seed: int, cpu_s: float) -> RunSamples:
    """The trainer waits for one worker that computes."""
    base = parted(seed, supply=0.02)
    fetch = noisy(cpu_s, 300, 0.005, seed)
    lengths = [each + 0.004 * random.Random(seed).random() for each in fetch]
    work = RunWork(
        trainer_cpu=[0.001] * 300, fetch_cpu=fetch, felt_frac=1.0, supply=0.02, queued=0.01
    )
    return msgspec.structs.replace(
        base, steps=lengths, parts={"input": lengths, "forward": [0.001] * 300}, work=work
    )


def test_what_recordings_say_of_their_own_error_counts_beside_how_far_they_differ() -> None:
    befores = [fed_by_workers(seed, 0.02 * factor) for seed, factor in enumerate((1, 0.98, 1.02))]
    afters = [fed_by_workers(seed + 9, 0.0226 * factor) for seed, factor in enumerate((1, 0.97, 1))]
    pair = compare_samples(befores[0], afters[0])
    several = compare_sides(befores, afters)
    assert pair.cpu is not None
    assert several.cpu is not None
    assert (several.judgement, several.judged_by) == ("slower", "cpu")
    assert several.cpu.high - several.cpu.low < pair.cpu.high - pair.cpu.low


def test_recordings_that_differ_by_far_more_than_they_say_are_not_believed() -> None:
    befores = [fed_by_workers(seed, 0.02 * factor) for seed, factor in enumerate((1, 0.7, 1.3))]
    afters = [fed_by_workers(seed + 9, 0.025 * factor) for seed, factor in enumerate((1, 0.7, 1.3))]
    assert compare_sides(befores, afters).judgement == "same"


def test_traces_have_few_steps_and_are_judged_at_a_lower_level() -> None:
    before, after = (
        msgspec.structs.replace(run([0.0] * 6, noisy(0.1, 6, seed=seed)), kind="trace", left_out=1)
        for seed in (1, 2)
    )
    comparison = compare_samples(before, after)
    assert (comparison.step.level, comparison.recordings_needed) == (95, None)
    assert any("left out" in note for note in comparison.notes)


def test_rare_work_is_not_put_down_to_neighbours() -> None:
    """Workers that start anew take the trainer's CPU time once in twenty steps, beside others."""

    def started(first_s: float, seed: int) -> RunSamples:
        base = epochs(first_s, seed)
        cpu = [0.002 + start for start in base.parts["epoch start"]]
        return msgspec.structs.replace(base, work=RunWork(trainer_cpu=cpu, disturbed_frac=1.0))

    assert compare_samples(started(0.3, seed=1), started(0.01, seed=3)).judgement == "faster"
