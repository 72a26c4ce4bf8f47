"""The one recommended setting: the fewest workers that finish the whole job as soon as any."""

from __future__ import annotations

import msgspec
import pytest

from fuelline.report import write_forecasts
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.diagnosis.trials import Recommendation, Setting, risk_of
from fuelline.schema.readings import Missing, Reading
from fuelline.whatif import answer, fit, recommend, seed_settings
from fuelline.whatif.fitting import Fit
from fuelline.whatif.recommending import ask_for
from tests.unit.whatif.jobs import make_facts, ms, plain

ASLEEP = {"batch": 130.0, "workers": 1, "cpu": 2.0, "blocked": 126.0, "device": 8.0, "cores": 2.0}
"""One worker that sleeps 126 ms for each batch; the device takes 8."""


def asleep(**more):
    demands = {"sleep_frac": plain(1.0), "read_frac": plain(0.0), "metadata_frac": plain(0.0)}
    return make_facts(**{**ASLEEP, **more, "demands": {**demands, **more.pop("demands", {})}})


def recommended(facts) -> Recommendation:
    found = recommend(fit(facts))
    assert isinstance(found, Recommendation), found
    return found


def test_cores_are_no_cap_for_workers_that_sleep() -> None:
    facts = asleep()
    seen = msgspec.structs.replace(facts.input, cpu_share=plain(0.044), core_wait_share=plain(0.01))
    found = recommended(msgspec.structs.replace(facts, input=seen))
    assert 14 <= found.workers <= 20  # 130 / 8 = 16
    assert f"{found.workers} workers keep up as well as any number would" in found.why
    assert "4.4 % of fetch time is spent computing, so cores are not the limit" in found.why


def test_fetches_that_wait_for_a_core_are_limited_by_cores() -> None:
    """Beside others who use the cores little is computed, for want of a core."""
    facts = make_facts(batch=66, workers=1, cpu=25.0, queued=40.0, host=1.0, device=4.0, cores=2.0)
    seen = msgspec.structs.replace(facts.input, cpu_share=plain(0.39), core_wait_share=plain(0.61))
    found = recommended(msgspec.structs.replace(facts, input=seen))
    assert not found.settings
    assert found.why == "61 % of fetch time is spent waiting for a core: more workers queue"


def test_a_queue_evens_out_fetches_that_differ_by_themselves_only() -> None:
    """Those that wait for a core do so at the same time."""
    spread = {"fetch_spread": plain(2.0)}
    uneven = make_facts(
        batch=20, workers=2, cpu=9.0, blocked=9.0, device=10.0, cores=2.0, demands=spread
    )
    assert "prefetch_factor" in [setting.knob for setting in recommended(uneven).settings]
    seen = msgspec.structs.replace(uneven.input, core_wait_share=plain(0.3))
    crowded = recommended(msgspec.structs.replace(uneven, input=seen))
    assert "prefetch_factor" not in [setting.knob for setting in crowded.settings]


def test_cores_are_the_cap_for_workers_that_compute() -> None:
    found = recommended(make_facts(batch=130.0, workers=1, cpu=128.0, device=8.0, cores=2.0))
    assert found.workers <= 3


def test_one_recommendation_is_what_whatif_suggests_and_what_tune_tries_first() -> None:
    fitted = fit(asleep())
    found = recommend(fitted)
    assert isinstance(found, Recommendation)
    report = answer(fitted, WhatIf())
    assert report.recommended == found
    assert ask_for(found) in [each.question for each in report.forecasts]
    assert list(seed_settings(fitted, 2.0)[0].settings) == found.settings


def test_starting_workers_is_weighed_against_the_length_of_the_job() -> None:
    long_job = recommended(asleep(demands={"job_batches": 100_000}))
    short_job = recommended(asleep(demands={"job_batches": 20}))
    assert short_job.workers < long_job.workers


def test_an_epoch_needs_no_more_workers_than_it_has_batches() -> None:
    demands = {"pause_seconds": {"epoch start": 0.03}, "pause_counts": {"epoch start": 100}}
    found = recommended(asleep(demands={**demands, "batches": 500}))
    assert found.workers <= 5
    assert found.why.startswith("5 workers are the most for an epoch of 5 batches")


def test_one_worker_is_one() -> None:
    found = recommended(make_facts(batch=12.8, workers=0, cpu=4.0, device=2.0, host=8.0))
    assert found.workers == 1
    assert found.why == "1 worker keeps up as well as any number would"
    assert found.cost == "1 more process with its own memory"


def test_memory_bounds_the_number_of_workers() -> None:
    demands = {"worker_bytes": plain(1e9), "free_bytes": plain(4e9)}
    found = recommended(asleep(demands=demands))
    assert found.workers <= 4
    assert "4 workers are the most for the memory that is free" in found.why
    assert "any number" not in found.why


def test_what_was_never_seen_to_scale_is_stretched_four_times_at_most() -> None:
    found = recommended(asleep(demands={"sleep_frac": plain(0.0)}))
    assert found.workers <= 4


def test_a_storage_of_which_it_is_not_known_if_it_serves_more_gets_no_more_workers() -> None:
    waiting = {"batch": 51.25, "cpu": 2.0, "blocked": 100.0, "device": 12.0}
    several = recommended(make_facts(**waiting, workers=2))
    assert several.settings == []
    assert "fuelline probe" in several.why
    single = recommended(make_facts(**{**waiting, "batch": 103.0}, workers=1))
    assert single.workers > 1


def test_a_device_takes_no_longer_than_there_is_time_for_a_batch() -> None:
    assert isinstance(fit(asleep(batch=13.0, workers=9, device=56.0)), Fit)


def test_a_service_that_serves_one_at_a_time_gets_no_more_workers() -> None:
    facts = asleep(
        batch=130.0,
        workers=4,
        blocked=516.0,
        demands={"sleep_frac": plain(0.0)},
    )
    turns = msgspec.structs.replace(facts.input, blocked_growth=plain(1.0))
    assert recommended(facts).workers > 4
    assert recommended(msgspec.structs.replace(facts, input=turns)).workers <= 4


def test_a_fed_job_is_left_as_it_is() -> None:
    found = recommended(make_facts(batch=10.5, workers=2, cpu=4.0, device=10.0))
    assert found.settings == []
    assert isinstance(found.speedup, Reading)
    assert found.text() == ""


def test_without_a_model_nothing_is_recommended() -> None:
    assert isinstance(recommend(Missing(reason="no steps")), Missing)


@pytest.mark.parametrize("workers", [0, 1, 2, 8])
def test_following_the_recommendation_leaves_nothing_to_recommend(workers: int) -> None:
    """What is recommended for a job does not depend on the setting that it was recorded with."""
    batch = max(8.5, 128.0 / max(1, workers)) if workers else 137.0
    found = recommended(asleep(batch=batch, workers=workers))
    assert 12 <= found.workers <= 20


def test_more_workers_for_a_stream_come_with_their_risk() -> None:
    found = recommended(asleep(loader={"style": "iterable"}))
    assert f"get_worker_info(), or each one comes {found.workers} times" in found.risk
    text = str(write_forecasts(answer(fit(asleep(loader={"style": "iterable"})), WhatIf()), "run"))
    assert f"Check first: {found.risk}" in text


def test_what_changes_nothing_has_no_risk() -> None:
    assert recommended(make_facts(batch=10.5, workers=2, cpu=4.0, device=10.0)).risk == ""
    longer_queue = [Setting(knob="prefetch_factor", value=4)]
    assert risk_of(longer_queue, None) == ""
    staying = [*longer_queue, Setting(knob="persistent_workers", value=True)]
    assert "set_epoch()" in risk_of(staying, None)


def test_workers_that_are_to_stay_are_not_made_fewer_by_the_way() -> None:
    """One would do as well within 3 %, which a prediction may err by; epochs are what costs."""
    restarts = make_facts(
        batch=20, workers=2, cpu=12, host=2.0, device=12, pauses={"epoch start": 8.0},
        demands={"start_seconds": ms(30), "pause_counts": {"epoch start": 15}},
    )  # fmt: skip
    assert [each.text() for each in recommended(restarts).settings] == ["persistent_workers=True"]
