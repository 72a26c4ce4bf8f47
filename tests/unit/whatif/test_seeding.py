"""Which settings `tune` tries: the model's answer first, then where it may err."""

from __future__ import annotations

from fuelline.schema.readings import Missing
from fuelline.whatif import fit, seed_settings
from tests.unit.whatif.jobs import make_facts, ms

DECODING = {"batch": 21.5, "workers": 1, "cpu": 20.0, "device": 10.0}


def tried(**job) -> list[dict[str, int]]:
    seeds = seed_settings(fit(make_facts(**job)), 8.0)
    return [{each.knob: each.value for each in settings} for settings, _ in seeds]


def test_what_the_model_finds_is_tried_first_and_then_its_neighbours() -> None:
    first, *others = tried(**DECODING)
    best = first["num_workers"]
    assert best > 1
    assert {"num_workers": best + 1} in others
    assert {"num_workers": 2 * best} in others
    assert {"num_workers": best, "prefetch_factor": 4} in others


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
    counts = [settings[0].value for settings, _ in seed_settings(unknown, 2.0)]
    assert counts == [1, 2, 4, 8]
    many = [settings[0].value for settings, _ in seed_settings(unknown, 64.0)]
    assert many == [32, 64, 128]
