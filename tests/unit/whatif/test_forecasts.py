"""What the model says about jobs whose answer is known by hand or by law."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fuelline.schema.diagnosis.ceilings import Ceiling, Probe
from fuelline.schema.diagnosis.devices import DeviceFacts
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.diagnosis.storages import StorageKind
from fuelline.schema.readings import Missing, Reading, Signal
from fuelline.whatif import find_least_workers, fit, forecast, suggest
from fuelline.whatif.fitting import Fit
from fuelline.whatif.model import run
from tests.unit.whatif.jobs import UNKNOWN, make_facts, ms, plain

if TYPE_CHECKING:
    from fuelline.schema.diagnosis.facts import Facts


def fitted(**job) -> Fit:
    found = fit(make_facts(**job))
    assert isinstance(found, Fit), found
    return found


def gain(job: Fit, **question) -> float:
    told = forecast(job, WhatIf(**question)).speedup
    assert isinstance(told, Reading), told
    told.check()
    return told.value


DECODING = {"batch": 21.5, "workers": 1, "cpu": 20.0, "device": 10.0}
"""One worker that computes all the time; 8 cores; the device could take twice as much."""
WAITING = {"batch": 51.25, "workers": 2, "cpu": 2.0, "blocked": 100.0, "device": 12.0}
"""Two workers that wait for storage nearly all the time."""


def test_a_second_worker_doubles_what_one_decodes_until_the_device_is_the_limit() -> None:
    told = forecast(fitted(**DECODING), WhatIf(workers=2))
    assert isinstance(told.speedup, Reading)
    assert told.speedup.value == pytest.approx(21.5 / 10.7, rel=0.03)
    more = forecast(fitted(**DECODING), WhatIf(workers=6))
    assert isinstance(more.speedup, Reading)
    assert more.speedup.value == pytest.approx(21.5 / 10, rel=0.02)
    assert more.limit == "device"


def test_workers_that_wait_need_no_cores() -> None:
    job = fitted(**WAITING, cores=1.0)
    assert gain(job, workers=4) == pytest.approx(2.0, rel=0.05)
    assert gain(job, workers=8) == pytest.approx(4.0, rel=0.1)


def test_workers_that_compute_do() -> None:
    job = fitted(batch=21.5, workers=1, cpu=20.0, device=2.0, host=0.5, cores=2.0)
    told = forecast(job, WhatIf(workers=8))
    assert told.limit == "cores"
    assert isinstance(told.speedup, Reading)
    # Two cores give 2 / 22 batches per ms at most: cpu, handing over, taking and the host's own.
    assert told.speedup.value <= 21.5 / (22 / 2) * 1.001
    assert told.speedup.value == pytest.approx(21.5 / (22 / 2), rel=0.1)


def test_storage_at_its_limit_gives_no_more_to_more_workers() -> None:
    job = fitted(batch=50.0, workers=4, cpu=2.0, blocked=196.0, storage={"limit_use": plain(1.0)})
    assert gain(job, workers=16) == pytest.approx(1.0, abs=0.03)
    assert forecast(job, WhatIf(workers=16)).limit_words == "storage bandwidth"
    assert gain(job, storage="2x") == pytest.approx(2.0, rel=0.05)


def test_more_requests_take_their_share_of_a_storage_that_others_fill() -> None:
    """Others move three quarters of the bytes: 4 of our requests stand beside 12 of theirs."""
    storage: dict[str, Signal] = {"limit_use": plain(1.0), "others_share": plain(0.75)}
    job = fitted(batch=50.0, workers=4, cpu=2.0, blocked=196.0, device=5.0, storage=storage)
    assert gain(job, workers=8) == pytest.approx((8 / 20) / (4 / 16), rel=0.05)
    assert gain(job, alone=True) == pytest.approx(4.0, rel=0.05)
    assert gain(job, workers=8, alone=True) == pytest.approx(4.0, rel=0.05)


def test_data_in_memory_leaves_the_cpu_time() -> None:
    job = fitted(**{**WAITING, "cpu": 20.0, "batch": 60.25, "device": 5.0}, cores=8.0)
    assert gain(job, storage="warm") == pytest.approx(60.25 / 10.25, rel=0.05)


def test_packed_data_takes_the_opens_away() -> None:
    job = fitted(**{**WAITING, "read": 0.2, "metadata": 0.8, "device": 5.0})
    assert gain(job, storage="packed") == pytest.approx(102.5 / 22.5, rel=0.06)
    assert gain(job, storage="nvme") > gain(job, storage="packed")


def test_a_job_without_workers_overlaps_nothing() -> None:
    job = fitted(batch=23.0, workers=0, cpu=20.0, device=10.0, host=3.0)
    assert gain(job, workers=1) == pytest.approx(23.0 / 20.5, rel=0.04)
    assert gain(job, workers=4) == pytest.approx(23.0 / 10.1, rel=0.03)
    assert gain(fitted(**DECODING), workers=0) == pytest.approx(21.5 / 22.4, rel=0.05)


def test_a_faster_chip_helps_only_where_the_device_is_the_limit() -> None:
    assert gain(fitted(**DECODING), chip_factor=3.0) == pytest.approx(1.0, abs=0.01)
    bound = fitted(batch=50.0, workers=4, cpu=20.0, device=50.0)
    assert gain(bound, chip_factor=3.0) == pytest.approx(3.0, rel=0.05)
    assert gain(bound, chip_factor=100.0) == pytest.approx(50.0 / 5.2, rel=0.1)


def test_a_host_that_computes_itself_gains_by_what_is_moved_off_it() -> None:
    job = fitted(batch=63.0, workers=0, cpu=1.0, host=62.0, device=60.0, beside=False)
    assert gain(job, chip_factor=3.0) == pytest.approx(63.0 / 23.0, rel=0.02)


def test_rarer_checkpoints_give_back_what_was_felt_of_them() -> None:
    job = fitted(batch=80.0, workers=2, cpu=1.0, device=40.0, pauses={"checkpoint": 40.0})
    assert gain(job, rarer={"checkpoint": 4.0}) == pytest.approx(80 / 50, rel=0.03)
    told = forecast(job, WhatIf(rarer={"validation": 4.0})).speedup
    assert isinstance(told, Missing)
    assert "no validation" in told.reason


def test_workers_that_are_kept_start_once() -> None:
    job = fitted(
        batch=60.0,
        workers=2,
        cpu=10.0,
        device=40.0,
        pauses={"epoch start": 20.0},  # 10 epochs of 30 batches: 600 ms each
    )
    assert gain(job, persistent=True) == pytest.approx(60 / 40.5, rel=0.03)


def test_workers_that_set_themselves_up_share_the_cores_to_do_so() -> None:
    """10 batches an epoch and half a second of its start, which two workers spend side by side."""
    demands = {"pause_counts": {"epoch start": 30}}
    job = {"batch": 95.0, "workers": 2, "cpu": 10.0, "device": 45.0, "pauses": {"epoch start": 50}}
    alone, shared = (fitted(**job, cores=cores, demands=demands) for cores in (8.0, 2.0))
    assert gain(alone, workers=4) == pytest.approx(95 / (95 + 8), rel=0.03)
    assert gain(shared, workers=4) == pytest.approx(95 / (95 + 8 + 42), rel=0.06)


def test_others_on_a_full_storage_may_keep_what_they_have() -> None:
    storage: dict[str, Signal] = {"limit_use": plain(1.0), "others_share": plain(0.75)}
    job = fitted(batch=50.0, workers=4, cpu=2.0, blocked=196.0, device=5.0, storage=storage)
    more = forecast(job, WhatIf(workers=8)).speedup
    alone = forecast(job, WhatIf(alone=True)).speedup
    assert isinstance(more, Reading)
    assert isinstance(alone, Reading)
    assert more.low is not None
    assert alone.low is not None
    assert more.low < 1 < more.value
    assert alone.low > 3


def test_a_fixed_cost_of_nearly_all_may_be_less() -> None:
    facts = make_facts(batch=40.0, workers=2, cpu=1.0, device=40.0)
    compute = msgspec.structs.replace(facts.compute, fixed_share=plain(1.0))
    told = forecast(fit(msgspec.structs.replace(facts, compute=compute)), WhatIf(batch_size=64))
    assert isinstance(told.speedup, Reading)
    assert told.speedup.low is not None
    assert told.speedup.value == pytest.approx(4, rel=0.02)
    assert told.speedup.low < 0.85 * told.speedup.value


def test_a_larger_batch_shares_the_fixed_cost() -> None:
    facts = make_facts(batch=40.0, workers=2, cpu=1.0, device=40.0)
    assert isinstance(forecast(fit(facts), WhatIf(batch_size=32)).speedup, Missing)
    compute = msgspec.structs.replace(facts.compute, fixed_share=plain(0.75))
    job = fit(msgspec.structs.replace(facts, compute=compute))
    assert isinstance(job, Fit)
    # 16 -> 32 samples: 0.75 of 40 ms stays, 0.25 doubles.
    assert gain(job, batch_size=32) == pytest.approx(2 * 40 / 50, rel=0.02)


def test_ranks_share_the_cores_of_their_host() -> None:
    job = fitted(batch=11.2, workers=2, cpu=20.0, device=10.0, host=0.5, cores=2.5)
    assert gain(job, ranks=1) == pytest.approx(1.0)
    assert gain(job, ranks=2) < 1.35
    assert forecast(job, WhatIf(ranks=2)).limit == "cores"


def test_recorded_ranks_on_one_host_do_not_count_each_others_cores_as_free() -> None:
    """Each of two ranks keeps one of two cores busy with one worker: none is left for a second."""
    alone, shared = fitted(**DECODING, cores=2.0), fitted(**DECODING, cores=2.0, ranks=2)
    assert gain(alone, workers=2) > 1.5
    assert gain(shared, workers=2) < 1.15
    assert forecast(shared, WhatIf(workers=2)).limit == "cores"
    assert find_least_workers(shared) < find_least_workers(alone)
    assert gain(shared) == pytest.approx(1.0)


def test_another_chip_lies_between_the_ratios_of_its_math_and_its_memory() -> None:
    facts = make_facts(batch=50.0, workers=4, cpu=5.0, device=50.0)
    recorded = DeviceFacts(device="gpu0", name="NVIDIA A100-SXM4-80GB")
    job = fit(msgspec.structs.replace(facts, devices=[recorded]))
    told = forecast(job, WhatIf(chip="H100-SXM-80GB")).speedup
    assert isinstance(told, Reading)
    # 989 over 312 TFLOPS, 3,350 over 2,039 GB/s.
    assert told.value == pytest.approx((989 / 312 * 3350 / 2039) ** 0.5, rel=0.05)
    assert told.low is not None
    assert told.high is not None
    assert told.low < 3350 / 2039 * 1.1
    assert told.high > 989 / 312 * 0.9


def test_another_chip_is_refused_without_one_in_the_recording() -> None:
    told = forecast(fitted(**DECODING), WhatIf(chip="H100-SXM-80GB")).speedup
    assert isinstance(told, Missing)
    assert "--chip 3x" in told.reason


def test_fewer_cores_stay_few_for_a_job_that_is_alone_on_them() -> None:
    assert gain(fitted(**DECODING), cores=0.5, alone=True) < 0.6


def test_the_rate_of_one_rank_stays_that_of_one_rank() -> None:
    told = forecast(fitted(**DECODING, cores=16.0, ranks=4), WhatIf()).samples_per_s
    assert isinstance(told, Reading)
    assert told.value == pytest.approx(16 / 0.0215, rel=0.01)


def test_neighbours_make_a_job_less_certain_that_its_trainer_limits() -> None:
    """It needs a core as well, and how many others want one differs from run to run."""

    def width(others: float) -> float:
        facts = make_facts(batch=21.0, workers=1, cpu=4.0, host=20.0, device=2.0, cores=2.0)
        cores = msgspec.structs.replace(facts.cores, others=plain(others))
        speedup = forecast(
            fit(msgspec.structs.replace(facts, cores=cores)), WhatIf(workers=2)
        ).speedup
        assert isinstance(speedup, Reading)
        return speedup.high / speedup.low

    assert width(0.9) > 1.2 * width(0.0)


def test_a_recording_whose_pace_changed_by_itself_gives_a_wider_interval() -> None:
    def spread(error_frac: float) -> float:
        facts = make_facts(
            batch=22, workers=1, demands={"batch_seconds": ms(22, error_frac=error_frac)}
        )
        speedup = forecast(fit(facts), WhatIf(workers=2)).speedup
        assert isinstance(speedup, Reading)
        return speedup.high / speedup.low

    assert spread(0.10) > 1.2 * spread(0.01)


def test_rivals_are_seen_in_the_run_queue_and_gone_when_alone() -> None:
    crowded = fitted(batch=31.5, workers=1, cpu=20.0, queued=10.0, device=5.0, cores=2.0)
    assert crowded.pipe.rivals > 0.5
    assert gain(crowded, alone=True) == pytest.approx(31.5 / 21.5, rel=0.06)


def test_a_pinned_batch_needs_copies_that_were_seen() -> None:
    told = forecast(fitted(**DECODING), WhatIf(pin=True)).speedup
    assert isinstance(told, Missing)


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("device_seconds", "the test"),
        ("batch_seconds", "the test"),
        ("fetch_cpu_seconds", "the test"),
        ("host_seconds", "the test"),
    ],
)
def test_without_the_evidence_there_is_no_prediction(missing: str, reason: str) -> None:
    found = fit(make_facts(**DECODING, demands={missing: UNKNOWN}))
    assert isinstance(found, Missing)
    assert reason in found.reason
    told = forecast(found, WhatIf(workers=2))
    assert isinstance(told.speedup, Missing)
    assert told.limit is None


def test_storage_that_was_never_tried_harder_is_not_trusted_far() -> None:
    told = forecast(fitted(**WAITING), WhatIf(workers=32)).speedup
    assert isinstance(told, Missing)
    assert "32" not in told.reason
    assert "at most 8 workers" in told.reason
    near = forecast(fitted(**WAITING), WhatIf(workers=8)).speedup
    assert isinstance(near, Reading)
    assert near.low is not None
    assert near.low < 1 < near.value  # it may serve one at a time


def test_a_service_that_was_never_asked_more_may_serve_one_at_a_time() -> None:
    told = forecast(fitted(**WAITING, read=0.0), WhatIf(workers=4)).speedup
    assert isinstance(told, Reading)
    assert told.low is not None
    assert told.low < 1 < told.value


def test_sleeping_workers_sleep_side_by_side() -> None:
    job = fitted(**WAITING, read=0.0, demands={"sleep_frac": plain(1.0)})
    told = forecast(job, WhatIf(workers=4)).speedup
    assert isinstance(told, Reading)
    assert told.low is not None
    assert told.low > 1.5


@pytest.mark.parametrize(("at_once", "gained"), [(1, 1.0), (3, 1.5), (None, 4.0)])
def test_a_probe_of_the_storage_says_how_far_more_workers_go(
    at_once: int | None, gained: float
) -> None:
    kind = StorageKind(
        words="probed", request_seconds=6e-3, bytes_per_s=1e9, requests_at_once=at_once
    )
    facts = make_facts(**WAITING, storage={"in_flight": plain(2.0)})
    probe = Probe(host="here", path="/data", storage=kind)
    job = fit(msgspec.structs.replace(facts, probe=probe))
    assert isinstance(job, Fit)
    assert gain(job, workers=8) == pytest.approx(gained, rel=0.1)


def test_which_blocked_time_is_storage_must_be_known_to_take_it_away() -> None:
    job = fit(make_facts(**WAITING, demands={"read_frac": UNKNOWN, "metadata_frac": UNKNOWN}))
    assert isinstance(forecast(job, WhatIf(storage="warm")).speedup, Missing)


def test_a_model_that_is_far_off_says_so_instead_of_predicting() -> None:
    found = fit(make_facts(batch=200.0, workers=1, cpu=20.0, device=10.0))
    assert isinstance(found, Missing)
    assert "does not explain" in found.reason


def test_the_least_workers_that_feed_the_device_are_found() -> None:
    assert find_least_workers(fitted(**DECODING)) in (2, 3)
    idle = fitted(batch=50.0, workers=8, cpu=5.0, device=50.0)
    assert find_least_workers(idle) in (0, 1)


def test_suggestions_are_ranked_and_worth_something() -> None:
    told = suggest(fitted(**WAITING), 2.5)
    values = [each.speedup.value for each in told if isinstance(each.speedup, Reading)]
    assert values == sorted(values, reverse=True)
    assert len(values) == len(told) > 1
    assert all(each.worth_usd_per_day and each.worth_usd_per_day > 0 for each in told)


times = st.floats(0.5, 200)


@settings(max_examples=settings().max_examples // 4)
@given(
    workers=st.integers(1, 12),
    cpu=times,
    blocked=st.floats(0, 200),
    device=times,
    host=st.floats(0.2, 50),
    cores=st.sampled_from([1.0, 2.0, 8.0, 64.0]),
    seen=st.floats(0, 1),
    more=st.integers(1, 12),
)
@example(workers=1, cpu=27.0, blocked=0.0, device=2.0, host=1.0, cores=2.0, seen=1.0, more=7)
def test_laws_hold_for_any_job(
    *,
    workers: int,
    cpu: float,
    blocked: float,
    device: float,
    host: float,
    cores: float,
    seen: float,
    more: int,
) -> None:
    round_ms = cpu + blocked + 0.5
    batch = max(round_ms / workers, device, host + 1.0, (cpu + host + 1.5) / cores) * 1.05
    facts = make_facts(
        batch=batch,
        workers=workers,
        cpu=cpu,
        blocked=blocked,
        device=device,
        host=host,
        cores=cores,
        storage={"saturation": Reading(value=seen, unit="frac", low=seen, high=seen, level=95)},
    )
    job = fit(facts)
    assume(isinstance(job, Fit))
    assert isinstance(job, Fit)
    assert gain(job) == pytest.approx(1.0)
    assert gain(job, workers=workers) == pytest.approx(1.0)
    now, then = gain(job, workers=more), gain(job, workers=more + 1)
    assert then >= now * (1 - 0.02)  # each is of finitely many batches, and 1 % off at most
    for question in (WhatIf(workers=more), WhatIf(storage="warm", chip_factor=3.0)):
        told = forecast(job, question)
        assert isinstance(told.speedup, Reading)
        assert told.speedup.low is not None
        assert told.speedup.high is not None
        assert told.speedup.low <= told.speedup.value <= told.speedup.high
        assert told.speedup.value <= told.bounds[0].speedup * (1 + 1e-9)


def test_a_rate_is_the_speedup_of_the_recorded_one() -> None:
    job = fitted(**DECODING)
    told = forecast(job, WhatIf(workers=2))
    assert isinstance(told.samples_per_s, Reading)
    assert isinstance(told.speedup, Reading)
    assert told.samples_per_s.value == pytest.approx(16 / 21.5e-3 * told.speedup.value)
    assert run(replace(job.pipe, workers=2)).batch_s == pytest.approx(
        16 / told.samples_per_s.value, rel=1e-3
    )


@pytest.mark.parametrize(("growth", "gained"), [(0.0, 1.9), (0.5, 1.4), (1.0, 1.0)])
def test_workers_that_share_the_memory_gain_as_much_less(growth: float, gained: float) -> None:
    facts = make_facts(**DECODING)
    seen = Reading(value=growth, unit="frac", low=growth - 0.1, high=growth + 0.1)
    shared = msgspec.structs.replace(
        facts, input=msgspec.structs.replace(facts.input, cpu_growth=seen)
    )
    job = fit(shared)
    assert isinstance(job, Fit)
    assert gain(job, workers=2) == pytest.approx(gained, abs=0.1)


def probed(**rates: float) -> Probe:
    ceilings = [
        Ceiling(group="memory", name=name, what=name, signal=plain(rate))
        for name, rate in rates.items()
    ]
    return Probe(host="here", path="/", ceilings=ceilings)


def with_memory(facts: Facts, probe: Probe | None = None, **signals: float) -> Fit:
    told = {name: plain(value) for name, value in signals.items()}
    waiting = msgspec.structs.replace(facts.input, **told)
    found = fit(msgspec.structs.replace(facts, input=waiting, probe=probe))
    assert isinstance(found, Fit), found
    return found


def test_no_prediction_moves_more_bytes_than_the_memory_does() -> None:
    facts = make_facts(**DECODING)
    job = with_memory(facts, probed(copy_1=1e10, copy_8=2e10), batch_bytes=3.6e8)
    told = forecast(job, WhatIf(workers=8))
    assert isinstance(told.speedup, Reading)
    assert told.speedup.value == pytest.approx(21.5 / 18, rel=0.01)  # 360 MB at 20 GB/s
    assert told.limit == "memory"


def test_batches_that_fit_into_a_cache_are_not_bounded_by_memory() -> None:
    facts = make_facts(**DECODING)
    job = with_memory(facts, probed(copy_1=1e7, copy_8=1e7), batch_bytes=1e6)
    assert gain(job, workers=8) == pytest.approx(2.15, rel=0.02)


def test_a_probe_that_was_disturbed_does_not_deny_what_was_recorded() -> None:
    facts = make_facts(**DECODING)
    job = with_memory(facts, probed(copy_1=1e9, copy_8=1e9), batch_bytes=3.6e8)
    assert gain(job) == pytest.approx(1.0)
    assert gain(job, workers=2) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    ("moving", "all_cores", "gained"), [(0.0, 1e10, 2.0), (1.0, 1e10, 1.4), (1.0, 8e10, 2.0)]
)
def test_workers_that_only_move_bytes_gain_what_copies_leave_possible(
    moving: float, all_cores: float, gained: float
) -> None:
    facts = make_facts(**DECODING)
    job = with_memory(facts, probed(copy_1=1e10, copy_8=all_cores), moving_share=moving)
    told = forecast(job, WhatIf(workers=2)).speedup
    assert isinstance(told, Reading)
    assert told.value == pytest.approx(gained, abs=0.07)
    assert told.low is not None
    assert (told.low < 1.0) == (gained < 2.0)  # memory that is full, or a cache: both are inside


def test_a_neighbour_that_is_gone_leaves_its_memory() -> None:
    facts = make_facts(**DECODING)
    shared = msgspec.structs.replace(
        facts, cores=msgspec.structs.replace(facts.cores, others=plain(1.0))
    )
    seen = Reading(value=1.0, unit="frac", low=0.9, high=1.1)
    waiting = msgspec.structs.replace(facts.input, beside_growth=seen)
    job = fit(msgspec.structs.replace(shared, input=waiting))
    assert isinstance(job, Fit)
    assert gain(job, alone=True) == pytest.approx(2.0, rel=0.05)
    assert gain(job, workers=2) == pytest.approx(4 / 3, rel=0.05)  # two of three, not one of two


def test_storage_that_is_surely_full_gains_nothing_by_more_workers() -> None:
    seen = Reading(value=1.2, unit="frac", low=0.6, high=1.8)
    job = fitted(**WAITING, storage={"saturation": seen, "in_flight": plain(2.0)})
    assert gain(job, workers=4) < 1.1
