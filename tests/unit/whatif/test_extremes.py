"""Absurd questions: hundreds of workers, dozens of ranks, storage that others never saw so busy."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from fuelline.schema.diagnosis.forecasts import Forecast, WhatIf
from fuelline.schema.diagnosis.storages import STORAGE_KINDS
from fuelline.schema.readings import Reading, value_of
from fuelline.whatif import fit, forecast, network
from fuelline.whatif.fitting import Fit
from fuelline.whatif.model import deliver
from fuelline.whatif.network import MOST_EXACT, Station, throughput
from tests.unit.whatif.jobs import make_facts

READING = {"batch": 51.25, "workers": 2, "cpu": 2.0, "blocked": 100.0, "device": 1.0, "host": 0.5}


def ask(**question) -> Forecast:
    job = fit(make_facts(**READING))
    assert isinstance(job, Fit)
    return forecast(job, WhatIf(**question))


@pytest.mark.parametrize("delay", [0.0, 1.0])
def test_with_many_customers_the_balance_of_flows_is_the_exact_answer(
    delay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cpu, disk, cores in itertools.product((0.01, 0.5, 1.0), (0.02, 1.0), (2, 32)):
        stations = (
            Station(cpu, lambda count, most=cores: min(count, most)),
            Station(disk, lambda count: count**0.3 if count else 0.0),
        )
        exact = throughput(MOST_EXACT, delay, stations)
        with monkeypatch.context() as patched:
            patched.setattr(network, "MOST_EXACT", 1)
            assert throughput(MOST_EXACT, delay, stations) == pytest.approx(exact, rel=0.04)


def test_any_number_of_workers_and_ranks_is_answered() -> None:
    told = ask(workers=512, prefetch=1000, ranks=64, storage="nvme")
    assert isinstance(told.speedup, Reading)
    told.speedup.check()


def test_hundreds_of_workers_deliver_no_more_than_they_make() -> None:
    assert deliver(51.2, 0.01, 512, 2, spread=0.3) >= 51.2 / 512


def test_a_named_storage_answers_for_more_requests_than_were_recorded() -> None:
    assert isinstance(ask(workers=12, storage="nvme").speedup, Reading)
    assert not isinstance(ask(workers=12).speedup, Reading)  # the recorded one: cannot tell


def test_a_disk_with_one_arm_gets_no_faster_by_more_workers() -> None:
    few, many = ask(workers=2, storage="hdd"), ask(workers=32, storage="hdd")
    assert value_of(many.speedup) == pytest.approx(value_of(few.speedup), rel=0.05)
    assert many.limit_words == "storage bandwidth"


def test_a_storage_gives_no_more_bytes_than_it_has_bandwidth() -> None:
    slow = STORAGE_KINDS["nvme"]
    facts = make_facts(**READING)
    bytes_read = value_of(facts.demands.read_bytes)
    assert bytes_read
    told = ask(workers=64, storage="nvme")
    storage = next(each.speedup for each in told.bounds if each.limit == "storage")
    assert value_of(told.speedup) <= storage * (1 + 1e-9)
    assert storage <= 51.25e-3 * slow.bytes_per_s / bytes_read * 1.01


def test_a_hundredth_of_a_device_is_not_called_none() -> None:
    assert "0.01 times as fast" in ask(chip_factor=0.01).words


@pytest.mark.parametrize(
    "question", [{"ranks": 16}, {"workers": 8}, {"chip_factor": 0.1}, {"transform_factor": 10.0}]
)
def test_an_interval_does_not_reach_far_beyond_what_a_law_allows(question) -> None:
    crowded = make_facts(batch=160.0, workers=1, cpu=20.0, device=2.0, host=0.5, cores=2.0)
    queued = Reading(value=0.135, unit="s", low=0.1, high=0.17, level=95)
    demands = msgspec.structs.replace(crowded.demands, fetch_queued_seconds=queued)
    job = fit(msgspec.structs.replace(crowded, demands=demands))
    assert isinstance(job, Fit)
    told = forecast(job, WhatIf(**question))
    assert isinstance(told.speedup, Reading)
    tightest = min(each.speedup for each in told.bounds)
    assert told.speedup.high <= 1.3 * tightest
    told.speedup.check()
