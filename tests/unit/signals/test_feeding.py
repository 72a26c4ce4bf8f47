"""What a feed amounts to, from the accounts of the processes that took its batches."""

import msgspec
import pytest

from fuelline.schema.diagnosis.feeding import FeedAccount, FeedRequest
from fuelline.schema.diagnosis.findings import Diagnosis, RunSummary, StepStats, Verdict
from fuelline.schema.readings import Missing, Reading
from fuelline.signals.feeding import FedRates, answer_feed, measure_feed, with_waiting
from tests.unit.builders import Lane, facts_of, make_timeline

SECOND = 10**9
VERDICT = Verdict(
    code=None, stage=None, limit=None, share_of_wall=None, sentence="", reason="nothing recorded"
)
DIAGNOSIS = Diagnosis(
    run=RunSummary(run_id="test", command=[], host="here", exit_code=0, seconds=1.0),
    verdict=VERDICT,
    budget=[],
    findings=[],
    steps=StepStats(count=0),
    window=None,
    blindspots=[],
)


def account(batches: int, *, wait_s: float, work_s: float, warm: int = 0) -> FeedAccount:
    """Batches of 8 samples, each waited and worked for as long."""
    return FeedAccount(
        pid=1,
        seen=[],
        waits_ns=[int(wait_s * SECOND)] * batches,
        works_ns=[int(work_s * SECOND)] * batches,
        samples=[8] * batches,
        warm=warm,
    )


def read(signal: object) -> Reading:
    assert isinstance(signal, Reading)
    signal.check()
    return signal


def test_rates_add_up_and_utilisation_is_the_mean() -> None:
    fed = account(100, wait_s=0.0, work_s=0.5)
    starved = account(100, wait_s=1.5, work_s=0.5)
    rates = measure_feed([fed, starved], emulated=True)
    assert read(rates.samples_per_s).value == pytest.approx(16 + 4)
    assert read(rates.utilisation).value == pytest.approx((1 + 0.25) / 2)
    assert read(rates.batch_seconds).value == pytest.approx((0.5 + 2) / 2)
    assert read(rates.samples_per_s).count == 200


def test_few_batches_give_a_rate_without_an_interval() -> None:
    rate = read(measure_feed([account(3, wait_s=1, work_s=1)], emulated=True).samples_per_s)
    assert (rate.value, rate.low, rate.high) == (pytest.approx(4), None, None)


def test_batches_before_the_queue_was_level_are_not_counted() -> None:
    waits = account(10, wait_s=1.0, work_s=1.0, warm=10)
    rates = measure_feed([account(10, wait_s=1.0, work_s=1.0), waits], emulated=True)
    assert rates.samples_per_s == Missing(reason="too few batches were taken")


def test_without_an_emulated_accelerator_there_is_no_utilisation() -> None:
    rates = measure_feed([account(100, wait_s=0.1, work_s=0.0)], emulated=False)
    assert isinstance(rates.utilisation, Missing)
    assert read(rates.samples_per_s).value == pytest.approx(80)


def rated(samples_per_s: float, busy: float) -> FedRates:
    return FedRates(
        samples_per_s=Reading(value=samples_per_s, unit="count/s"),
        utilisation=Reading(value=busy, unit="frac"),
        batch_seconds=Missing(reason="not asked"),
    )


@pytest.mark.parametrize(
    ("workload", "busy", "is_fed"),
    [
        ("cosmoflow", 0.75, True),
        ("cosmoflow", 0.65, False),
        (None, 0.75, False),
        (None, 0.95, True),
    ],
)
def test_who_is_fed_is_judged_by_the_mark_of_the_workload(
    workload: str | None, busy: float, is_fed: bool
) -> None:
    told = answer_feed(
        [account(12, wait_s=1, work_s=1, warm=2)] * 2,
        rated(1000.0, busy),
        FeedRequest(seconds=1.0, workload=workload),
        DIAGNOSIS,
    )
    assert told.is_fed is is_fed
    assert (told.batches, told.samples, told.seconds) == (20, 160, pytest.approx(20))
    assert told.first_batch_seconds == pytest.approx(1)


def test_chips_are_counted_that_could_be_fed_at_the_mark() -> None:
    request = FeedRequest(seconds=1.0, workload="resnet50")
    accounts = [account(12, wait_s=1, work_s=1)]
    told = answer_feed(accounts, rated(2000.0, 1.0), request, DIAGNOSIS)
    # An A100 takes 400 / 0.435 = 920 samples a second, an H100 400 / 0.224 = 1786.
    assert {each.chip: each.count for each in told.chips} == {"A100": 2, "H100": 1}
    unknown = FedRates(
        samples_per_s=Missing(reason="too few"),
        utilisation=Missing(reason="too few"),
        batch_seconds=Missing(reason="too few"),
    )
    told = answer_feed(accounts, unknown, request, DIAGNOSIS)
    assert (told.chips, told.is_fed) == ([], None)


def test_a_recording_that_shows_no_waiting_is_left_as_it_is() -> None:
    facts = facts_of(make_timeline(Lane().step().step()))
    never = msgspec.structs.replace(facts, budget=[])
    assert with_waiting(never, 0.4) is never
