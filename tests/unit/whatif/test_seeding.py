"""Which settings `tune` tries: the model's answer first, then where it may err."""

from __future__ import annotations

from fuelline.schema.diagnosis.trials import Recommendation
from fuelline.schema.readings import Missing
from fuelline.whatif import fit, recommend, seed_settings
from tests.unit.whatif.jobs import make_facts, ms

DECODING = {"batch": 21.5, "workers": 1, "cpu": 20.0, "device": 10.0}


def tried(**job) -> list[dict[str, int]]:
    seeds = seed_settings(fit(make_facts(**job)), 8.0)
    return [{each.knob: each.value for each in seed.settings} for seed in seeds]


def test_what_is_recommended_is_tried_first_and_then_a_spread_around_it() -> None:
    found = fit(make_facts(**DECODING))
    recommended = recommend(found)
    assert isinstance(recommended, Recommendation)
    first, *others = tried(**DECODING)
    assert first == {each.knob: each.value for each in recommended.settings}
    assert first["num_workers"] > 1
    assert any(each["num_workers"] > first["num_workers"] for each in others)
    assert all(each["num_workers"] in (2, 4, 8, 16) for each in others)


def test_a_trial_knows_what_workers_and_cores_allow() -> None:
    seeds = seed_settings(fit(make_facts(batch=21.5, workers=1, cpu=20.0, cores=2.0)), 2.0)
    assert all(seed.most < 2.5 for seed in seeds)


def test_the_job_itself_is_not_tried_against_itself() -> None:
    assert {"num_workers": 1} not in tried(**DECODING)
    assert all(tried(batch=10.5, workers=2, cpu=2.0, device=10.0))


def test_pinning_is_tried_where_copies_to_a_device_were_seen() -> None:
    copies = {"copy_seconds": ms(2.0)}
    pageable = tried(**DECODING, demands=copies, loader={"pin_memory": False})
    assert any(settings.get("pin_memory") for settings in pageable)
    pinned = tried(**DECODING, demands=copies, loader={"pin_memory": True})
    assert not any("pin_memory" in settings for settings in pinned)
    assert not any("pin_memory" in settings for settings in tried(**DECODING))


def test_without_a_model_a_ladder_also_finds_workers_that_only_wait() -> None:
    unknown = Missing(reason="no steps")
    counts = [seed.settings[0].value for seed in seed_settings(unknown, 2.0)]
    assert counts == [1, 2, 4, 8]
    many = [seed.settings[0].value for seed in seed_settings(unknown, 64.0)]
    assert many == [32, 64, 128]


def test_without_a_model_what_the_job_has_is_not_tried_again() -> None:
    seeds = seed_settings(Missing(reason="no steps"), 2.0, 1)
    assert [seed.settings[0].value for seed in seeds] == [2, 4, 8]
