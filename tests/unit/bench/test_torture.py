"""Cases of the torture are drawn from their seeds, and judged by what the plain job did."""

from __future__ import annotations

import functools
import json
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from bench import torture
from bench.torture.case import FAULTS, MODES, Case, draw, is_race, kills_torchrun
from bench.torture.drive import LARGE_BYTES, Result, write_files
from bench.torture.judge import find_complaint, find_remains, is_alike, without_ranks

if TYPE_CHECKING:
    from pathlib import Path

CLEAN = Result(0, "step 0 a\nstep 1 b\ndone\n", "", {"result": "b"}, [])


@functools.cache
def drawn() -> list[Case]:
    return [draw(seed) for seed in range(10_000)]


def a_case(fault: str, mode: str | None = None, **told: object) -> Case:
    return next(
        case
        for case in drawn()
        if case.fault == fault
        and mode in (None, case.mode)
        and told.items() <= {**case.told, **case.outside}.items()
    )


def test_a_seed_gives_the_same_case_again_and_all_are_tried() -> None:
    assert drawn()[7] == draw(7)
    assert {case.fault for case in drawn()} == set(FAULTS)
    assert {case.mode for case in drawn()} == set(MODES)


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
    assert find_complaint(case, CLEAN, CLEAN, CLEAN) is None
    assert find_complaint(case, got, CLEAN, CLEAN)


def test_a_job_goes_on_without_its_launcher() -> None:
    case = a_case("kill beside", whom="launcher", signal=9)
    assert find_complaint(case, replace(CLEAN, returncode=-9), CLEAN, CLEAN) is None
    cut = replace(CLEAN, returncode=-9, stdout="step 0 a\n", results={})
    assert "did not go on" in str(find_complaint(case, cut, CLEAN, CLEAN))


def test_a_signal_that_the_job_dies_of_may_cut_its_output_but_not_change_it() -> None:
    case = a_case("signal from outside", whom="job", signal=15, catches=False, kind="plain")
    died = replace(CLEAN, returncode=-15, stdout="step 0 a\n", results={}, seen="step 0 a\n")
    assert find_complaint(case, died, CLEAN, CLEAN) is None
    assert find_complaint(case, replace(died, stdout="step 0 x\n"), CLEAN, CLEAN)
    assert find_complaint(case, replace(died, returncode=0), CLEAN, CLEAN)


def test_what_was_seen_before_the_signal_may_not_be_lost() -> None:
    case = a_case("signal from outside", whom="job", signal=15, catches=False, kind="plain")
    died = replace(CLEAN, returncode=-15, stdout="step 0 a\n", results={})
    assert find_complaint(case, replace(died, seen="step 0 a\nstep 1 b\n"), CLEAN, CLEAN)
    assert find_complaint(case, replace(died, seen=None), CLEAN, CLEAN), "no signal, no such end"
    done = replace(died, stdout=CLEAN.stdout, seen="")
    assert find_complaint(case, done, CLEAN, CLEAN), "a job that is done has left its result"
    assert find_complaint(case, replace(done, results=CLEAN.results), CLEAN, CLEAN) is None


def test_a_signal_is_caught_once_and_after_all_that_was_said() -> None:
    case = a_case("signal from outside", whom="job", signal=15, catches=True, kind="plain")
    caught = replace(CLEAN, returncode=7, results={}, seen="step 0 a\n")
    said = "step 0 a\ncaught SIGTERM\n"
    assert find_complaint(case, replace(caught, stdout=said), CLEAN, CLEAN) is None
    for wrong in ("caught SIGTERM\n", "step 0 a\n", said + "caught SIGTERM\n", "step 0 x\n" + said):
        assert find_complaint(case, replace(caught, stdout=wrong), CLEAN, CLEAN)


def test_ranks_may_say_that_they_caught_the_signal_but_torchrun_fails() -> None:
    case = a_case("signal from outside", whom="group", signal=15, catches=True, kind="ranks")
    caught = replace(CLEAN, returncode=1, stdout="step 0 a\ncaught SIGTERM\n", results={}, seen="")
    assert find_complaint(case, caught, CLEAN, CLEAN) is None
    assert find_complaint(case, replace(caught, returncode=0), CLEAN, CLEAN)
    assert find_complaint(case, replace(caught, seen="step 0 a\nstep 1 b\n"), CLEAN, CLEAN)


def test_a_signal_to_the_launcher_that_the_job_sent_comes_after_its_step() -> None:
    case = a_case("kill beside", whom="launcher", signal=15, kind="plain", at=0)
    died = replace(CLEAN, returncode=-15, results={})
    assert find_complaint(case, replace(died, stdout="step 0 a\n"), CLEAN, CLEAN) is None
    assert find_complaint(case, replace(died, stdout=""), CLEAN, CLEAN)


FAILED = replace(CLEAN, returncode=1, stdout="step 0 a\n", results={})
"""A killed worker was missed."""


def test_a_killed_worker_is_missed_where_the_plain_job_misses_it() -> None:
    case = a_case("kill worker", mode="run", at=0)
    later = replace(FAILED, stdout="step 0 a\nstep 1 b\n")
    assert find_complaint(case, later, FAILED, CLEAN) is None
    assert find_complaint(case, replace(FAILED, stdout=""), FAILED, CLEAN), "a step is lost"
    assert find_complaint(case, CLEAN, FAILED, CLEAN), "a race, or a defect"
    assert find_complaint(case, FAILED, CLEAN, CLEAN)
    assert find_complaint(case, replace(CLEAN, returncode=1, results={}), FAILED, CLEAN)
    assert find_complaint(case, replace(CLEAN, results={"result": "x"}), CLEAN, CLEAN)
    assert find_complaint(a_case("kill worker", mode="fix"), CLEAN, FAILED, CLEAN) is None


def test_only_killed_workers_and_ranks_that_end_are_races() -> None:
    for case in drawn():
        is_ranks = case.told["kind"] == "ranks"
        faults = {"ending", "kill worker", "kill beside", "signal from outside"}
        if is_race(case):
            assert case.fault in (faults if is_ranks else {"kill worker"})
            assert case.outside.get("whom") not in {"observer", "report"}
    assert is_race(a_case("kill worker", kind="torch"))
    assert is_race(a_case("ending", kind="ranks"))
    assert not is_race(a_case("ending", kind="torch"))
    assert not is_race(a_case("streams", kind="ranks"))


def test_a_plain_run_that_hangs_forgives_nothing() -> None:
    case = a_case("kill worker", mode="run", at=0)
    assert is_alike(case, FAILED, FAILED, CLEAN)
    assert not is_alike(case, FAILED, replace(FAILED, hangs=True), CLEAN)
    assert not is_alike(case, replace(FAILED, hangs=True), FAILED, CLEAN)
    assert not is_alike(case, FAILED, CLEAN, CLEAN)


def test_a_plain_run_under_too_tight_a_limit_forgives_nothing() -> None:
    case = a_case("file size", kind="torch")
    assert find_complaint(case, replace(CLEAN, returncode=5), FAILED, CLEAN) is None
    assert not is_alike(case, replace(CLEAN, returncode=5), FAILED, CLEAN)


class Runs:
    """A bench whose runs end as they are listed; it fails where more are asked for."""

    def __init__(self, first: Result, again: list[Result], recorded: list[Result]) -> None:
        self.first, self.again, self.recorded = first, iter(again), iter(recorded)

    def plain(self, _: Case, *, is_clean: bool) -> Result:
        return CLEAN if is_clean else self.first

    def plain_again(self, _: Case) -> Result:
        return next(self.again)

    def record(self, _: Case) -> Result:
        return next(self.recorded)


def run_race(runs: Any) -> tuple[str, str]:
    row = torture._run_one(runs, a_case("kill worker", mode="run", at=0).seed)
    return row["verdict"], row["complaint"]


def test_a_race_is_forgiven_if_both_jobs_end_both_ways() -> None:
    runs = Runs(FAILED, [FAILED, CLEAN], [CLEAN, CLEAN, FAILED])
    assert run_race(runs) == ("same as another plain run", "")


def test_an_end_that_no_plain_run_has_differs() -> None:
    assert run_race(Runs(FAILED, [FAILED] * 5, [CLEAN]))[0] == "differs"


def test_a_recorded_job_that_never_ends_as_the_first_plain_run_differs() -> None:
    verdict, complaint = run_race(Runs(FAILED, [CLEAN], [CLEAN] * 4))
    assert verdict == "differs"
    assert "never as the plain run" in complaint


REMAINS = [
    {"orphans": ["observer"]},
    {"left": ["tmp/x"]},
    {"hangs": True},
    {"stderr": "Traceback: fuelline/cli/run.py"},
]


@pytest.mark.parametrize("remains", REMAINS)
def test_what_remains_is_never_forgiven(remains: dict[str, Any]) -> None:
    bad = replace(CLEAN, **remains)
    assert find_remains(bad, FAILED)
    assert run_race(Runs(FAILED, [], [bad]))[0] == "differs"
    assert run_race(Runs(FAILED, [CLEAN], [CLEAN, bad]))[0] == "differs"


RANK = "python -u /home/me/fuelline/bench/torture/job.py {}"
OURS = [
    "python -m fuelline.record.observer",
    "python -m fuelline run --run-dir x job.py {}",
    "/usr/bin/fuelline run job.py {}",
]


def test_ranks_of_a_killed_torchrun_may_stay_if_those_of_the_plain_job_do() -> None:
    waiting = replace(CLEAN, returncode=-9, orphans=[RANK])
    assert without_ranks(waiting, waiting).orphans == []
    assert without_ranks(waiting, CLEAN).orphans == [RANK]
    both = replace(waiting, orphans=[RANK, *OURS])
    assert without_ranks(both, waiting).orphans == OURS


def test_torchrun_is_killed_only_where_the_job_of_ranks_is() -> None:
    assert kills_torchrun(a_case("signal from outside", whom="job", signal=9, kind="ranks"))
    assert not kills_torchrun(a_case("signal from outside", whom="job", signal=15, kind="ranks"))
    assert not kills_torchrun(a_case("signal from outside", whom="job", signal=9, kind="torch"))


def test_rows_of_other_commits_are_run_again(tmp_path: Path) -> None:
    state = tmp_path / "rows"
    rows = [{"seed": 1, "commit": "a"}, {"seed": 2, "commit": "b"}, {"seed": 3}]
    rows.append({"seed": 4, "commit": "a-dirty"})
    state.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [row["seed"] for row in torture.load_rows(state, "a")] == [1]
    assert torture.load_rows(state, "a-dirty") == []
    assert torture.load_rows(tmp_path / "none", "a") == []


@pytest.mark.parametrize(("changed", "name"), [("", "abc"), (" M x.py\n", "abc-dirty")])
def test_a_changed_tree_is_no_commit(
    changed: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, 0, "abc\n" if "HEAD" in words else changed)

    monkeypatch.setattr(subprocess, "run", answer)
    assert torture.find_commit() == name


def test_the_section_names_the_commit() -> None:
    figures = {"failed": [], "same": 1, "cases": 1, "raced": 0}
    row = {"seed": 1, "mode": "run", "fault": "none", "verdict": "same"}
    assert "commit abc-dirty" in torture.markdown(figures, [row], 1, "abc-dirty")


def test_one_file_is_larger_than_all_limits_of_file_size(tmp_path: Path) -> None:
    write_files(tmp_path / "data")
    sizes = sorted(path.stat().st_size for path in (tmp_path / "data").iterdir())
    limits = [case.limit[1] for case in drawn() if case.limit[0] == "-f"]
    assert sizes[-2] < 1024 * max(limits) < sizes[-1] == LARGE_BYTES
    assert {"cache", "packed"} <= {c.mode for c in drawn() if c.fault == "file size"}
