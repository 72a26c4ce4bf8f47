"""Two runs as they are shown: the time for equal work, what is rare, and what cannot be told."""

import msgspec

from fuelline.report.diagnosis.comparison import write_comparison
from fuelline.report.renderers.markdown import render_markdown
from fuelline.schema.diagnosis.comparison import RunComparison, RunSamples, RunWork
from fuelline.signals.changes import compare_samples, compare_sides


def run(*, starts_s: float = 0.0, step_s: float = 0.01, work: RunWork | None = None) -> RunSamples:
    """200 steps in epochs of twenty, hardly noisy."""
    usual = [step_s * (1 + 0.01 * (place % 3)) for place in range(200)]
    starts = [starts_s if place % 20 == 19 else 0.0 for place in range(200)]
    return RunSamples(
        label="run",
        kind="recorded",
        steps=[one + other for one, other in zip(usual, starts, strict=True)],
        is_stepped=True,
        parts={"forward": usual, "epoch start": starts},
        rare={"epoch start": [starts_s] * 10} if starts_s else {},
        work=work,
    )


def words(comparison: RunComparison) -> str:
    return " ".join(render_markdown(write_comparison(comparison)).replace("\\", "").split())


def test_totals_are_shown_for_as_many_steps_and_rare_parts_by_their_occurrences() -> None:
    text = words(compare_samples(run(starts_s=0.9), run(starts_s=0.02)))
    assert "Steps are 80 % shorter" in text
    assert "for 200 steps)" in text
    assert "| epoch start | 10 x 900 ms | 10 x 20.0 ms | -44.0 ms | less |" in text


def test_a_change_that_neighbours_may_have_made_is_given_as_a_range_with_their_part() -> None:
    quiet, busy = RunWork(trainer_cpu=[0.01] * 200), RunWork(trainer_cpu=[0.01] * 200, queued=0.03)
    text = words(compare_samples(run(work=quiet), run(step_s=0.03, work=busy)))
    assert "Cannot tell: steps are 200 % longer, 10.1 ms -> 30.3 ms per step" in text
    assert "other processes or another speed of the machine may have made all of that" in text
    assert "waited for cores that others had (0 s before, 30.0 ms after)" in text


def test_more_cpu_time_is_said_with_the_length_that_could_not_tell() -> None:
    before = run(work=RunWork(trainer_cpu=[0.010] * 200))
    after = run(step_s=0.03, work=RunWork(trainer_cpu=[0.012] * 200, queued=0.03))
    comparison = compare_samples(before, after, threshold=0.05)
    text = words(comparison)
    assert "Steps take 2 ms more CPU time, 20 % of a step: 10.0 ms -> 12.0 ms" in text
    assert "Their length, 10.1 ms -> 30.3 ms per step" in text
    assert "over the limit of 5.0 %" in text
    assert repr(comparison) == "<RunComparison run -> run: step slower by 20 %>"


def test_without_an_interval_nothing_is_made_up() -> None:
    one = msgspec.structs.replace(run(), steps=[0.1], parts={"forward": [0.1]})
    other = msgspec.structs.replace(one, steps=[0.2], parts={"forward": [0.2]})
    comparison = compare_samples(one, other, threshold=0.05)
    said = words(comparison)
    assert "Cannot tell which is faster: 100 ms -> 200 ms per step" in said
    assert "the limit of 5.0 % cannot be checked" in said
    assert not comparison.is_over


def test_a_part_that_changed_against_the_others_is_named_with_what_the_others_did() -> None:
    def parted(speed: float, loop_s: float) -> RunSamples:
        parts = {"forward": 0.003, "backward": 0.004, "optimizer": 0.002}
        lengths = {part: speed * seconds for part, seconds in parts.items()} | {"loop": loop_s}
        return msgspec.structs.replace(
            run(work=RunWork(trainer_cpu=[0.009] * 200, queued=0.005, supply=0.001)),
            steps=[sum(lengths.values()) + 0.001 * (place % 9) for place in range(200)],
            parts={part: [seconds] * 200 for part, seconds in lengths.items()}
            | {"input": [0.001 * (place % 9) for place in range(200)]},
        )

    comparison = compare_samples(parted(1.0, 0.0001), parted(1.1, 0.0011))
    text = words(comparison)
    assert comparison.judged_by == "parts"
    assert "which took 1.10 times as long, as a machine of another speed makes them" in text
    assert "The length of steps" in text


def test_what_a_single_pair_cannot_tell_comes_with_what_would_help() -> None:
    quiet, busy = RunWork(trainer_cpu=[0.01] * 200), RunWork(trainer_cpu=[0.01] * 200, queued=0.03)
    pair = run(work=quiet), run(step_s=0.03, work=busy)
    text = words(compare_samples(*pair))
    assert "To see a change of 10 % in all of a step takes about 5 recordings of each side" in text
    assert "made in turns and added with --before and --after" in text
    several = compare_sides([pair[0]] * 2, [pair[0]] * 2)
    assert several.recordings_needed == 4
    assert "recordings of each side" not in words(several)
    assert "recordings of the same side differ by (99 %)" in words(several)


def test_of_traces_with_wide_noise_more_steps_are_asked_for() -> None:
    lengths = [0.05, 0.2, 0.05, 0.2]
    trace = msgspec.structs.replace(
        run(), kind="trace", steps=lengths, parts={"useful compute": lengths}
    )
    text = words(compare_samples(trace, trace))
    assert "profile more steps of each" in text
    assert "may have added (95 %)" in text


def test_no_change_within_wide_noise_is_not_shown_as_good_and_no_step_gets_shorter_than_none() -> (
    None
):
    quiet, busy = RunWork(trainer_cpu=[0.01] * 200), RunWork(trainer_cpu=[0.01] * 200, queued=0.02)
    wide = compare_samples(run(work=busy), run(work=busy))
    assert wide.judgement == "same"
    assert wide.step.low == -wide.step.before
    assert write_comparison(wide).blocks[0].unsure
    narrow = compare_samples(run(work=quiet), run(work=quiet))
    assert not write_comparison(narrow).blocks[0].unsure


def test_the_legend_is_of_the_last_column_and_stands_below_the_tables() -> None:
    run_ = msgspec.structs.replace(run(), sentence="it waits")
    text = words(compare_samples(run_, run_))
    assert "| step longer by | beyond noise |" in text
    assert text.index("empty is beyond neither") < text.index("Verdicts")
