"""The tuner picks the least that does as well as the best, and only what its turns prove."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec
import pytest

from fuelline.fix.tune.search import MeasuredSetting, Seed, choose, confirm, explain, judge, tune
from fuelline.schema.diagnosis.trials import Recommendation, Setting, Trial
from fuelline.schema.readings import Missing, Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = [Setting(knob="num_workers", value=1), Setting(knob="prefetch_factor", value=2)]


def workers(count: int) -> tuple[Setting, ...]:
    return (Setting(knob="num_workers", value=count),)


def machine(rates: dict[int, float], noise: float = 0.01, seed: int = 0):
    """A job that runs at these rates by its number of workers; 1 is its own."""
    chance = random.Random(seed)

    def measure(settings: Sequence[tuple[Setting, ...]]) -> list[MeasuredSetting]:
        told = []
        for each in settings:
            rate = rates[int(each[0].value) if each else 1]
            blocks = tuple(rate * (1 + noise * chance.gauss(0, 1)) for _ in range(8))
            told.append(MeasuredSetting(blocks, (rate, rate)))
        return told

    return measure


def seeds(*counts: int) -> list[Seed]:
    told = Reading(value=1.5, unit="x")
    return [Seed(workers(count), told) for count in counts]


def test_the_fewest_workers_that_do_as_well_as_the_best_win() -> None:
    trials = tune(seeds(2, 4, 8), machine({1: 40, 2: 79.5, 4: 80, 8: 80.3}))
    assert choose(trials, NOW) == list(workers(2))
    assert [trial.verdict for trial in trials] == ["same", "faster", "faster", "faster"]


def test_more_workers_must_show_that_they_bring_more() -> None:
    measured = {2: (3.66, 2.69, 4.99), 16: (3.79, 1.84, 7.80)}
    trials = [
        Trial(
            settings=list(workers(count)),
            speedup=Reading(value=value, unit="x", low=low, high=high, level=95),
            verdict="faster",
        )
        for count, (value, low, high) in measured.items()
    ]
    assert choose(trials, NOW) == list(workers(2))
    sure = Reading(value=3.66, unit="x", low=3.65, high=3.67, level=95)
    trials[0] = msgspec.structs.replace(trials[0], speedup=sure)
    assert choose(trials, NOW) == list(workers(16))


def test_a_fed_job_keeps_its_settings_or_gives_workers_back() -> None:
    trials = tune(seeds(2, 4), machine({1: 80, 2: 80.1, 4: 79.9}))
    assert choose(trials, NOW) == []
    now = [Setting(knob="num_workers", value=8)]
    trials = tune(seeds(2), machine({1: 80, 2: 80.0}))
    assert choose(trials, now) == list(workers(2))


def test_noise_is_no_gain() -> None:
    trials = tune(seeds(4), machine({1: 40, 4: 41}, noise=0.3))
    assert trials[1].verdict == "cannot tell"
    assert choose(trials, NOW) == []


def test_fewer_workers_that_chance_explains_are_not_chosen() -> None:
    now = [Setting(knob="num_workers", value=4)]
    unsure = Reading(value=0.6, unit="x", low=0.2, high=1.8, level=95)
    sure = Reading(value=1.0, unit="x", low=0.99, high=1.01, level=95)
    own = Trial(settings=[], speedup=Reading(value=1.0, unit="x"), verdict="same")
    fewer = Trial(settings=list(workers(2)), speedup=unsure, verdict=judge(unsure))
    more = Trial(settings=list(workers(8)), speedup=sure, verdict=judge(sure))
    assert choose([own, fewer], now) == []
    assert choose([own, fewer, more], now) == []


def test_a_setting_that_fails_is_never_chosen() -> None:
    def measure(settings: Sequence[tuple[Setting, ...]]) -> list[MeasuredSetting]:
        return [MeasuredSetting((40.0, 41.0, 40.0)), MeasuredSetting((), problem="cannot pickle")]

    trials = tune(seeds(4), measure)
    assert isinstance(trials[1].speedup, Missing)
    assert choose(trials, NOW) == []
    assert "cannot pickle" in explain(trials)[0]
    found = confirm(trials, [], NOW, Recommendation(settings=list(workers(4)), workers=4))
    assert found is not None
    assert (found.settings, found.workers, found.is_measured) == ([], 1, False)


def test_each_step_says_what_was_predicted_and_what_came_of_it() -> None:
    trials = tune(seeds(2), machine({1: 40, 2: 60}))
    said = explain(trials)
    assert said[0].startswith("num_workers=2: 1.50x predicted, 1.")
    assert said[0].endswith(") measured, faster.")


@pytest.mark.parametrize(
    ("value", "low", "high", "verdict"),
    [
        (1.5, 1.3, 1.7, "faster"),
        (0.7, 0.6, 0.8, "slower"),
        (1.01, 0.99, 1.03, "same"),
        (1.1, 0.9, 1.3, "cannot tell"),
    ],
)
def test_a_verdict_is_no_more_certain_than_its_interval(
    value: float, low: float, high: float, verdict: str
) -> None:
    assert judge(Reading(value=value, unit="x", low=low, high=high, level=95)) == verdict


def test_a_gain_that_no_machine_could_bring_is_refused() -> None:
    most = Seed((Setting(knob="num_workers", value=2),), Missing(reason="none"), most=2.0)
    trials = tune([most], machine({1: 40, 2: 220}))
    assert isinstance(trials[1].speedup, Missing)
    assert "more than workers and cores allow" in trials[1].speedup.reason
    assert choose(trials, NOW) == []


def test_trials_that_chance_explains_say_so_and_what_would_help() -> None:
    def measure(settings: Sequence[tuple[Setting, ...]]) -> list[MeasuredSetting]:
        return [MeasuredSetting((20.0, 60.0, 35.0)), MeasuredSetting((25.0, 70.0, 50.0))]

    trials = tune(seeds(4), measure)
    said = explain(trials)
    assert "too noisy" in said[-1]
    assert "--rounds" in said[-1]


def test_what_was_measured_outranks_what_was_predicted() -> None:
    predicted = Recommendation(
        settings=[Setting(knob="num_workers", value=8)], workers=8, why="they wait"
    )
    trials = tune(seeds(2, 8), machine({1: 40, 2: 80, 8: 80}))
    chosen = choose(trials, NOW)
    found = confirm(trials, chosen, NOW, predicted)
    assert found is not None
    assert [each.text() for each in found.settings] == ["num_workers=2"]
    assert found.is_measured
    assert found.workers == 2


def test_where_no_trial_is_better_the_model_is_not_quoted() -> None:
    predicted = Recommendation(
        settings=list(workers(8)), workers=8, limit_words="the device", cost="7 more processes"
    )
    trials = tune(seeds(8), machine({1: 80, 8: 80}))
    found = confirm(trials, choose(trials, NOW), NOW, predicted)
    assert found is not None
    assert (found.settings, found.workers, found.is_measured) == ([], 1, True)
    assert (found.cost, found.limit_words) == ("", "")
    assert "no setting" in found.why


def test_a_trial_that_chance_explains_does_not_refute_the_model() -> None:
    predicted = Recommendation(settings=list(workers(8)), workers=8, why="8 workers keep up")
    sure = Reading(value=1.0, unit="x", low=0.99, high=1.01, level=95)
    unsure = Reading(value=2.9, unit="x", low=0.8, high=9.5, level=95)
    own = Trial(settings=[], speedup=Reading(value=1.0, unit="x"), verdict="same")
    tried = [
        Trial(settings=list(workers(count)), speedup=speedup, verdict=judge(speedup))
        for count, speedup in ((8, unsure), (4, sure))
    ]
    assert confirm([own, *tried], choose([own, *tried], NOW), NOW, predicted) == predicted


def test_the_model_is_quoted_where_trials_confirm_it() -> None:
    predicted = Recommendation(
        settings=list(workers(2)), workers=2, limit_words="the device", cost="1 more process"
    )
    trials = tune(seeds(2), machine({1: 40, 2: 80}))
    found = confirm(trials, choose(trials, NOW), NOW, predicted)
    assert found is not None
    assert (found.workers, found.limit_words, found.cost) == (2, "the device", "1 more process")
    assert found.speedup == trials[1].speedup


def test_what_trials_choose_is_recommended_where_no_model_explains_the_job() -> None:
    trials = tune(seeds(2), machine({1: 40, 2: 80}))
    found = confirm(trials, choose(trials, NOW), NOW, None)
    assert found is not None
    assert (found.text(), found.workers) == ("DataLoader(..., num_workers=2)", 2)
    assert (found.speedup, found.is_measured) == (trials[1].speedup, True)
    assert "the fewest workers" in found.why
    assert "random augmentation" in found.risk
