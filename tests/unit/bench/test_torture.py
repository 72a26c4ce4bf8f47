"""Cases of the torture are drawn from their seeds, and judged by what the plain job did."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.torture.case import FAULTS, MODES, draw
from bench.torture.drive import Result
from bench.torture.judge import find_complaint

CLEAN = Result(0, "step 0 a\nstep 1 b\ndone\n", "", {"result": "b"}, [])
SEEDS = range(10_000)


def a_case(fault: str, **told: object) -> object:
    return next(
        case
        for case in map(draw, SEEDS)
        if case.fault == fault and told.items() <= {**case.told, **case.outside}.items()
    )


def test_a_seed_gives_the_same_case_again_and_all_are_tried() -> None:
    cases = [draw(seed) for seed in SEEDS]
    assert cases[7] == draw(7)
    assert {case.fault for case in cases} == set(FAULTS)
    assert {case.mode for case in cases} == set(MODES)


@pytest.mark.parametrize(
    "got",
    [
        replace(CLEAN, returncode=1),
        replace(CLEAN, stdout="step 0 a\n"),
        replace(CLEAN, results={}),
        replace(CLEAN, orphans=["observer"]),
        replace(CLEAN, left=["tmp/x"]),
        replace(CLEAN, hangs=True),
    ],
)
def test_what_differs_from_the_plain_job_is_named(got: Result) -> None:
    case = a_case("kill beside", whom="observer")
    assert find_complaint(case, CLEAN, CLEAN, CLEAN) is None  # type: ignore[arg-type]
    assert find_complaint(case, got, CLEAN, CLEAN)  # type: ignore[arg-type]


def test_a_job_goes_on_without_its_launcher() -> None:
    case = a_case("kill beside", whom="launcher", signal=9)
    assert find_complaint(case, replace(CLEAN, returncode=-9), CLEAN, CLEAN) is None  # type: ignore[arg-type]
    cut = replace(CLEAN, returncode=-9, stdout="step 0 a\n", results={})
    assert "did not go on" in str(find_complaint(case, cut, CLEAN, CLEAN))  # type: ignore[arg-type]


def test_a_signal_that_the_job_dies_of_may_cut_its_output_but_not_change_it() -> None:
    case = a_case("signal from outside", whom="job", signal=15, catches=False, kind="plain")
    died = replace(CLEAN, returncode=-15, stdout="step 0 a\n", results={})
    assert find_complaint(case, died, CLEAN, CLEAN) is None  # type: ignore[arg-type]
    assert find_complaint(case, replace(died, stdout="step 0 x\n"), CLEAN, CLEAN)  # type: ignore[arg-type]
    assert find_complaint(case, replace(died, returncode=0), CLEAN, CLEAN)  # type: ignore[arg-type]


def test_ranks_of_a_killed_torchrun_may_stay_but_nothing_of_ours() -> None:
    case = a_case("signal from outside", whom="job", signal=9, kind="ranks")
    killed = replace(CLEAN, returncode=1, stdout="", results={})
    waiting = replace(killed, orphans=["python -u bench/torture/job.py {}"])
    assert find_complaint(case, waiting, CLEAN, CLEAN) is None  # type: ignore[arg-type]
    ours = replace(killed, orphans=["python -m fuelline.record.observer"])
    assert "left running" in str(find_complaint(case, ours, CLEAN, CLEAN))  # type: ignore[arg-type]
