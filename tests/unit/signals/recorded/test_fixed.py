"""After --fix a report speaks of the job as it is then, and says how it was before."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from fuelline.report.diagnosis.writer import describe_fixes
from fuelline.schema.diagnosis.fixes import FixEvent, LoaderFixes
from fuelline.schema.run.recording import LoaderFacts
from fuelline.signals.recorded.fixed import find_fixed
from tests.unit.builders import MS, START_NS, TRAINER, Lane, facts_of, judge, make_timeline

AT_NS = START_NS + 5_000 * MS
"""When the setting changes: after 50 steps of 100 ms, 60 of them waiting."""
SERVED = FixEvent(event="served", pid=TRAINER, number=1, loader="DataLoader of x", workers=1)
CHANGE = FixEvent(event="change", pid=TRAINER, loader=1, active=4, window=8, at_ns=AT_NS)
KEPT = FixEvent(event="trial", pid=TRAINER, loader=1, active=4, window=8, verdict="kept")


def job(after: int = 100):
    """50 slow steps, then fast ones of 40 ms that hardly wait."""
    lane = Lane().worker(200)
    for _ in range(50):
        lane.step(wait=60, forward=10, backward=20, opt=10)
    for _ in range(after):
        lane.step(wait=1, forward=9, backward=20, opt=10)
    timeline = make_timeline(lane)
    return timeline, *judge(timeline)


def test_the_stretch_since_the_last_change_is_judged_with_its_settings() -> None:
    fixed = find_fixed(*job(), [SERVED, CHANGE, KEPT])
    assert fixed is not None
    assert (fixed.workers, fixed.prefetch) == (4, 2)
    assert fixed.segments.start_ns >= AT_NS
    assert fixed.segments.pieces["step"].min() == 0


def test_workers_are_started_once_for_all_batches_of_the_job() -> None:
    timeline, trainer, segments = job()
    ended = replace(timeline, run=msgspec.structs.replace(timeline.run, exit_code=0))
    fixed = find_fixed(ended, trainer, segments, [SERVED, CHANGE, KEPT])
    assert fixed is not None
    whole = int(segments.boundaries.len())
    assert fixed.job_batches == pytest.approx(whole, abs=1)
    assert fixed.segments.boundaries.len() < whole


def test_before_and_after_are_told_by_step_time_wait_and_workers() -> None:
    fixed = find_fixed(*job(), [SERVED, CHANGE, KEPT])
    assert fixed is not None
    assert fixed.effect is not None
    before, after = fixed.effect.before, fixed.effect.after
    assert (before.workers, after.workers) == (1, 4)
    assert before.step_seconds == pytest.approx(0.1, rel=0.02)
    assert after.step_seconds == pytest.approx(0.04, rel=0.02)
    assert before.wait_share == pytest.approx(0.6, abs=0.02)
    assert after.wait_share < 0.05


def test_a_change_just_before_the_end_leaves_the_one_that_was_kept_to_be_judged() -> None:
    late = FixEvent(
        event="change", pid=TRAINER, loader=1, active=8, window=16, at_ns=AT_NS + 3900 * MS
    )
    fixed = find_fixed(*job(), [SERVED, CHANGE, KEPT, late])
    assert fixed is not None
    assert fixed.workers == 4
    assert fixed.segments.end_ns <= late.at_ns


def test_a_job_without_changes_is_judged_as_it_is() -> None:
    assert find_fixed(*job(), []) is None
    assert find_fixed(*job(), [SERVED]) is None


def test_a_job_that_ends_soon_after_a_change_is_judged_before_it_and_no_mixture() -> None:
    timeline, trainer, segments = job(after=10)
    fixed = find_fixed(timeline, trainer, segments, [SERVED, CHANGE, KEPT])
    assert fixed is not None
    assert fixed.segments.end_ns <= AT_NS
    assert fixed.workers == 1  # as it was then
    assert fixed.recommended is not None
    assert fixed.recommended.workers == 4
    assert fixed.recommended.text() == "DataLoader(..., num_workers=4)"


def test_before_and_now_are_told_even_if_now_is_too_short_to_be_judged() -> None:
    fixed = find_fixed(*job(after=10), [SERVED, CHANGE, KEPT])
    assert fixed is not None
    assert fixed.effect is not None
    before, after = fixed.effect.before, fixed.effect.after
    assert (before.workers, after.workers) == (1, 4)
    assert after.step_seconds == pytest.approx(0.04, rel=0.1)
    assert after.wait_share is None  # a few steps are fed by what workers had ready
    said = str(describe_fixes([LoaderFixes(pid=1, loader="x", workers=1)], [], fixed.effect))
    assert "too soon after the last change" in said
    settled = find_fixed(*job(), [SERVED, CHANGE, KEPT])
    assert settled is not None
    said = str(describe_fixes([LoaderFixes(pid=1, loader="x", workers=1)], [], settled.effect))
    assert "too soon" not in said


def test_what_was_taken_back_at_the_end_is_not_recommended() -> None:
    back = msgspec.structs.replace(CHANGE, active=SERVED.workers, at_ns=CHANGE.at_ns + 1)
    fixed = find_fixed(*job(after=10), [SERVED, CHANGE, back])
    assert fixed is not None
    assert fixed.recommended is not None
    assert fixed.recommended.settings == []


def test_steps_fed_by_what_the_former_setting_ordered_are_not_judged() -> None:
    ordered = msgspec.structs.replace(SERVED, workers=8, prefetch=3)
    fixed = find_fixed(*job(), [ordered, CHANGE, KEPT])
    assert fixed is not None
    assert fixed.segments.start_ns == pytest.approx(AT_NS + 24 * 40 * MS, abs=80 * MS)


def test_a_last_setting_that_held_longest_is_the_job_as_it_is_however_short() -> None:
    early = msgspec.structs.replace(CHANGE, at_ns=START_NS + 4_500 * MS)
    again = msgspec.structs.replace(CHANGE, active=6, window=12, at_ns=START_NS + 4_600 * MS)
    first = msgspec.structs.replace(CHANGE, active=2, at_ns=START_NS + 200 * MS)
    middle = [
        msgspec.structs.replace(CHANGE, active=2 + place, at_ns=START_NS + 500 * place * MS)
        for place in range(1, 9)
    ]
    fixed = find_fixed(*job(after=30), [SERVED, first, *middle, early, again])
    assert fixed is not None
    assert fixed.workers == 6
    assert fixed.effect is not None
    assert fixed.effect.is_judged_after


def test_parts_of_the_stretch_sum_to_the_whole() -> None:
    _, _, segments = job()
    stretch = segments.between(AT_NS, segments.end_ns)
    assert stretch is not None
    spent = (stretch.pieces["end_ns"] - stretch.pieces["start_ns"]).sum()
    assert spent == stretch.wall_ns


def test_facts_have_the_settings_that_held_and_not_those_of_the_script() -> None:
    fixed = find_fixed(*job(), [SERVED, CHANGE, KEPT])
    assert fixed is not None
    facts = facts_of(job()[0])
    written = msgspec.structs.replace(facts, loader=LoaderFacts(num_workers=1))
    adjusted = fixed.adjust(written).loader
    assert adjusted is not None
    assert (adjusted.num_workers, adjusted.prefetch_factor) == (4, 2)
    without = msgspec.structs.replace(facts, loader=None)
    assert fixed.adjust(without) is without


def test_a_change_before_the_first_step_has_an_after_and_no_before() -> None:
    early = msgspec.structs.replace(CHANGE, at_ns=START_NS)
    fixed = find_fixed(*job(), [SERVED, early, KEPT])
    assert fixed is not None
    assert fixed.effect is None


def test_a_stretch_with_a_single_step_is_none() -> None:
    _, _, segments = job()
    assert segments.between(AT_NS, AT_NS + 1) is None


def test_a_long_stretch_with_few_steps_is_not_judged() -> None:
    lane = Lane().worker(200)
    for _ in range(50):
        lane.step(wait=60, forward=10, backward=20, opt=10)
    for _ in range(3):
        lane.step(wait=1, forward=900, backward=900, opt=10)
    timeline = make_timeline(lane)
    fixed = find_fixed(timeline, *judge(timeline), [SERVED, CHANGE, KEPT])
    assert fixed is not None
    assert fixed.recommended is not None
