"""The registry of cases keeps its promises, and the account of a job is read as it was printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench.results import write_section
from bench.zoo.any_cases import ANY_CASES
from bench.zoo.cases import CASES
from bench.zoo.jax_cases import JAX_CASES
from bench.zoo.job import JobError, read_account
from bench.zoo.tensorflow_cases import TENSORFLOW_CASES

if TYPE_CHECKING:
    from bench.zoo.case import Case

STAGES = {
    *("read", "fetch", "decode", "transform", "collate", "handoff"),
    *("transfer", "compute", "pause", "sync"),
}


def test_there_are_enough_cases_and_their_names_are_unique() -> None:
    assert len(CASES) >= 26
    assert len({case.name for case in CASES}) == len(CASES)
    assert sum(case.healthy for case in CASES) >= 6


def test_every_truth_is_a_known_stage_and_two_truths_are_argued_for() -> None:
    for case in [*CASES, *TENSORFLOW_CASES, *JAX_CASES, *ANY_CASES]:
        assert {stage for stage, _ in case.truth} <= STAGES
        assert bool(case.why_two) == (len(case.truth) > 1)


@pytest.mark.parametrize("family", [TENSORFLOW_CASES, JAX_CASES, ANY_CASES])
def test_the_cases_of_a_family_have_controls_and_names_of_their_own(family: list[Case]) -> None:
    names = {case.name for case in family}
    assert len(names) == len(family) >= 8
    assert not names & {case.name for case in CASES}
    assert sum(case.healthy for case in family) >= 2


def test_every_straggler_has_a_culprit_and_the_multi_rank_part_is_large_enough() -> None:
    ranked = [case for case in CASES if case.ranks]
    assert len(ranked) >= 12
    assert {case.ranks for case in ranked} == {2, 4}
    for case in CASES:
        assert (case.truth == (("sync", "imbalance"),)) == (case.culprit is not None)


def test_every_job_script_exists() -> None:
    for case in CASES:
        script, *_ = case.command(None)
        assert script.endswith(".py")
        with open(script) as file:  # noqa: PTH123
            assert "def main" in file.read()


def test_no_truth_is_tied_to_one_job_except_where_the_fault_is_the_jobs_own() -> None:
    jobs_by_truth: dict[tuple[str, str], set[str]] = {}
    for case in CASES:
        jobs_by_truth.setdefault(case.truth[0], set()).add(case.job)
    for truth in [
        ("read", "bandwidth"),
        ("read", "latency"),
        ("read", "contention"),
        ("read", "memory"),
        ("decode", "parallelism"),
        ("decode", "cores"),
    ]:
        assert len(jobs_by_truth[truth]) >= 2, truth


def test_an_account_is_the_last_such_line_of_the_output() -> None:
    line = '{"zoo": {"steps": 3, "samples_per_s": 1.5, "busy_frac": 0.5, "wait_frac": null}}'

    assert read_account(f"step 1\n{line}\nbye\n").steps == 3
    with pytest.raises(JobError, match="no account"):
        read_account("step 1\n")


def test_a_section_is_replaced_in_place_and_others_are_left_alone(tmp_path: object) -> None:
    page = tmp_path / "RESULTS.md"  # type: ignore[operator]
    write_section("a", "first", page)
    write_section("b", "other", page)
    write_section("a", r"second \1", page)

    assert "first" not in page.read_text()
    assert page.read_text().count("<!-- a:begin -->") == 1
    assert r"second \1" in page.read_text()
    assert page.read_text().index("second") < page.read_text().index("other")
