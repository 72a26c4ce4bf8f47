"""What many runs come to: sums that fit together, and names only where the evidence is enough."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from fuelline.fleet.reckoning import find_price, reckon
from fuelline.fleet.shelf import load_rows
from fuelline.schema.diagnosis.fleet import FleetCause, FleetGauge, FleetRun
from tests.unit.fleet.rows import DAY_S, NOW_S, fill, make_run

if TYPE_CHECKING:
    from pathlib import Path

    from fuelline.schema.diagnosis.fleet import FleetLosses

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"


def _reckon(store: Path, *runs: FleetRun, **asked: Any) -> FleetLosses:
    name = fill(store, *runs)
    usual: dict[str, Any] = {"by": "cause", "prices": {}, "since_s": None}
    return reckon(load_rows(name, None), name, **{**usual, **asked})


def test_hours_are_devices_times_time(tmp_path: Path) -> None:
    answer = _reckon(tmp_path, make_run(1), make_run(2, devices=1))
    assert answer.device_hours == pytest.approx(5.0)
    assert answer.lost_hours == pytest.approx(2.5)


def test_money_is_by_chip(tmp_path: Path) -> None:
    runs = (make_run(1), make_run(2, chip=A100))
    answer = _reckon(tmp_path, *runs, prices={"h100": 3.0, "a100": 1.0}, by="chip")
    assert answer.lost_usd == pytest.approx(2 * 3.0 + 2 * 1.0)
    assert {each.name: each.lost_usd for each in answer.groups} == {H100: 6.0, A100: 2.0}


def test_what_has_no_price_is_not_free(tmp_path: Path) -> None:
    answer = _reckon(tmp_path, make_run(1), make_run(2, chip=A100), prices={"h100": 3.0})
    assert answer.lost_usd is None
    assert answer.unpriced == [A100]


@pytest.mark.parametrize(
    ("chip", "prices", "usd"),
    [
        (H100, {"h100": 2.5}, 2.5),
        (H100, {"h100": 2.5, "h100 80gb": 3.5}, 3.5),
        (A100, {"h100": 2.5, "*": 1.0}, 1.0),
        (A100, {"h100": 2.5}, None),
        ("", {"*": 0.1}, 0.1),
    ],
)
def test_the_longest_name_that_fits_gives_the_price(
    chip: str, prices: dict[str, float], usd: float | None
) -> None:
    assert find_price(chip, prices) == usd


def test_no_group_loses_more_than_it_paid_for(tmp_path: Path) -> None:
    causes = [FleetCause(code=code, title=code, lost_seconds=3000.0) for code in ("A", "B")]
    answer = _reckon(tmp_path, make_run(causes=causes))
    assert answer.lost_hours == pytest.approx(answer.device_hours)


@pytest.mark.parametrize("by", ["user", "job", "host", "chip"])
def test_groups_sum_to_the_whole(tmp_path: Path, by: str) -> None:
    runs = [
        make_run(n, user=f"u{n % 3}", job=f"j{n % 4}", host=f"h{n % 5}", chip=(H100, "")[n % 2])
        for n in range(20)
    ]
    answer = _reckon(tmp_path, *runs, by=by)
    assert sum(each.lost_hours for each in answer.groups) == pytest.approx(answer.lost_hours)
    assert sum(each.runs for each in answer.groups) == answer.runs == 20


def test_jobs_are_ranked_by_what_their_advice_saves(tmp_path: Path) -> None:
    answer = _reckon(
        tmp_path,
        make_run(1, job="large gain", gain=4.0),
        make_run(2, job="small gain", gain=1.1),
        make_run(3, job="no prediction", gain=None),
    )
    assert [each.job for each in answer.jobs] == ["large gain", "no prediction", "small gain"]
    assert [each.is_bound for each in answer.jobs] == [False, True, False]
    assert answer.jobs[0].saved_hours == pytest.approx(3.0)


def test_weeks_begin_on_mondays(tmp_path: Path) -> None:
    answer = _reckon(tmp_path, make_run(1), make_run(2, started_s=NOW_S - 7 * DAY_S))
    assert [each.starts for each in answer.weeks] == ["2026-05-18", "2026-05-25"]


def _paced(rates: list[float], **fields: Any) -> list[FleetRun]:
    return [make_run(n, samples_per_s=rate, **fields) for n, rate in enumerate(rates)]


def test_a_job_that_became_slower_is_named(tmp_path: Path) -> None:
    answer = _reckon(tmp_path, *_paced([100, 101, 99, 102, 98, 100, 80]))
    (slower,) = answer.regressions
    assert slower.usual == pytest.approx(100, rel=0.01)
    assert slower.lowest_usual > slower.samples_per_s == 80


def test_a_job_that_always_varies_so_much_is_not(tmp_path: Path) -> None:
    assert not _reckon(tmp_path, *_paced([100, 70, 120, 85, 130, 75, 80])).regressions


def test_three_earlier_runs_are_too_few(tmp_path: Path) -> None:
    assert not _reckon(tmp_path, *_paced([100, 100.1, 99.9, 50])).regressions


def test_runs_on_other_chips_are_another_job(tmp_path: Path) -> None:
    older = _paced([100, 101, 99, 102, 98])
    assert not _reckon(tmp_path, *older, make_run(9, chip=A100, samples_per_s=50)).regressions


def test_equal_jobs_are_rarely_called_slower(tmp_path: Path) -> None:
    chance = random.Random(3)
    runs = [
        make_run(20 * job + n, job=f"job{job}", samples_per_s=100 * chance.lognormvariate(0, 0.2))
        for job in range(200)
        for n in range(8)
    ]
    assert len(_reckon(tmp_path, *runs).regressions) <= 200 * 0.03


def _read_on(hosts: dict[str, float], jobs: int = 3, runs: int = 4) -> list[FleetRun]:
    """Each job reads on every host; some jobs read more slowly everywhere."""
    chance = random.Random(1)
    return [
        make_run(
            n,
            job=f"job{job}",
            host=host,
            gauges=[
                FleetGauge(
                    kind="read latency",
                    place="/data",
                    value=0.001 * factor * (1 + 5 * job) * chance.lognormvariate(0, 0.1),
                )
            ],
        )
        for n, (host, factor, job, _) in enumerate(
            (host, factor, job, run)
            for host, factor in hosts.items()
            for job in range(jobs)
            for run in range(runs)
        )
    ]


def test_a_host_with_a_slow_disk_is_named(tmp_path: Path) -> None:
    (host,) = _reckon(tmp_path, *_read_on({"a": 1, "b": 1, "c": 1, "bad": 3})).hosts
    assert host.host == "bad"
    assert host.times_worse == pytest.approx(3, rel=0.2)
    assert host.peers == 3


def test_hosts_that_are_alike_are_not(tmp_path: Path) -> None:
    assert not _reckon(tmp_path, *_read_on({"a": 1, "b": 1.05, "c": 0.95, "d": 1.1})).hosts


def test_a_job_of_one_host_alone_says_nothing_of_it(tmp_path: Path) -> None:
    runs = [*_read_on({"a": 1, "b": 1, "c": 1}), *_read_on({"alone": 50}, jobs=1)]
    renamed = [
        make_run(100 + n, job="own", host="alone", gauges=each.gauges)
        for n, each in enumerate(runs[-4:])
    ]
    assert not _reckon(tmp_path, *runs[:-4], *renamed).hosts


def test_a_lower_rate_is_worse(tmp_path: Path) -> None:
    runs = [
        make_run(
            n,
            host=host,
            gauges=[FleetGauge(kind="network rate", place="", value=rate + n % 4)],
        )
        for n, (host, rate) in enumerate((h, r) for h, r in (("a", 100), ("b", 100), ("c", 40)) * 5)
    ]
    assert [each.host for each in _reckon(tmp_path, *runs).hosts] == ["c"]


def test_energy_lost_is_in_proportion(tmp_path: Path) -> None:
    assert _reckon(tmp_path, make_run(joules=1e6)).lost_joules == pytest.approx(5e5)
    assert _reckon(tmp_path / "other", make_run()).lost_joules is None
