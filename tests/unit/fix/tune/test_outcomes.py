"""What the job wrote of its fixes is told with intervals, and torn lines are no reason to fail."""

import json
from pathlib import Path
from typing import Any

from fuelline.fix.elastic.journal import FixJournal
from fuelline.fix.tune.outcomes import adopt_measured, summarise_fixes
from fuelline.ingest import read_fixes
from fuelline.report.diagnosis.writer import describe_fixes
from fuelline.schema.diagnosis.fixes import BeforeAfter, LoaderFixes, Stretch
from fuelline.schema.diagnosis.trials import Recommendation, Setting
from fuelline.schema.readings import Missing, Reading

TRIAL: dict[str, Any] = {
    "loader": 1, "active": 4, "window": 8, "was": [1, 2], "before": [30.0, 31.0, 32.0],
    "after": [90.0, 91.0, 92.0], "why": "it waited", "verdict": "kept",
}  # fmt: skip


def told(tmp_path: Path, *events: tuple[str, dict[str, Any]]) -> list[LoaderFixes]:
    journal = FixJournal(str(tmp_path / "fix"))
    for event, facts in events:
        journal.write(event, **facts)
    return summarise_fixes(read_fixes(tmp_path))


SERVED = ("served", {"number": 1, "loader": "DataLoader of x.Rows", "workers": 1})


def lines(fixes: list[LoaderFixes]) -> str:
    blocks = describe_fixes(fixes, [])
    return "\n".join(
        text for block in blocks[1:] for item in block.items for text in (item.text, *item.details)
    )


def test_a_trial_is_told_with_prediction_interval_and_outcome(tmp_path: Path) -> None:
    (loader,) = told(tmp_path, SERVED, ("trial", TRIAL), ("end", {"loader": 1, "active": 4}))
    (fix,) = loader.fixes
    assert [setting.text() for setting in fix.trial.settings] == ["num_workers=4"]
    assert isinstance(fix.trial.predicted, Missing)
    assert isinstance(fix.trial.speedup, Reading)
    assert 2.8 < fix.trial.speedup.value < 3.1
    assert (fix.outcome, fix.trial.verdict, loader.workers_at_end) == ("kept", "faster", 4)
    assert "num_workers=4: 2.94x (95 %: " in lines([loader])


FOUND = BeforeAfter(
    before=Stretch(seconds=3, step_seconds=0.04, wait_share=0.8, workers=1),
    after=Stretch(seconds=9, step_seconds=0.01, wait_share=0.1, workers=4),
)
STAYING = Setting(knob="persistent_workers", value=True)


def test_what_fix_found_is_what_to_write_with_what_the_model_adds(tmp_path: Path) -> None:
    kept = told(tmp_path, SERVED, ("trial", TRIAL))
    alone = adopt_measured(None, FOUND, kept)
    assert alone is not None
    assert (alone.text(), alone.is_measured) == ("DataLoader(..., num_workers=4)", True)
    assert isinstance(alone.speedup, Reading)
    assert 2.8 < alone.speedup.value < 3.1  # the trial's own, as it is listed
    both = adopt_measured(Recommendation(settings=[STAYING], why="epochs are short"), FOUND, kept)
    assert both is not None
    assert both.text() == "DataLoader(..., num_workers=4, persistent_workers=True)"
    assert "epochs are short" in both.why


def test_a_better_number_of_workers_than_fix_found_stays_the_models(tmp_path: Path) -> None:
    better = Recommendation(settings=[Setting(knob="num_workers", value=6)], workers=6)
    assert adopt_measured(better, FOUND, told(tmp_path, SERVED, ("trial", TRIAL))) is better
    taken_back = told(tmp_path / "back", SERVED, ("trial", {**TRIAL, "verdict": "rolled back"}))
    assert adopt_measured(None, FOUND, taken_back) is None


def test_a_number_that_was_not_told_from_noise_is_written_if_the_model_would_leave_it(
    tmp_path: Path,
) -> None:
    noisy = {**TRIAL, "verdict": "cannot tell", "after": [20.0, 31.0, 50.0]}
    unsure = told(tmp_path, SERVED, ("trial", noisy))
    leave = Recommendation(workers=4, why="no other number of workers would be faster")
    written = adopt_measured(leave, FOUND, unsure)
    assert written is not None
    assert written.text() == "DataLoader(..., num_workers=4)"
    assert isinstance(written.speedup, Missing)
    assert adopt_measured(Recommendation(workers=1), FOUND, unsure) == Recommendation(workers=1)


def test_a_gain_beyond_doubt_counts_although_the_job_ended_before_it_was_decided(
    tmp_path: Path,
) -> None:
    early = told(tmp_path, SERVED, ("trial", {**TRIAL, "verdict": "cannot tell"}))
    assert early[0].fixes[0].outcome == "kept"
    adopted = adopt_measured(None, FOUND, early)
    assert adopted is not None
    assert adopted.is_measured
    come_so_far = Recommendation(settings=[Setting(knob="num_workers", value=4)], workers=4)
    assert adopt_measured(come_so_far, FOUND, early) == adopted


def test_the_number_that_the_script_has_is_nothing_to_write(tmp_path: Path) -> None:
    back = Recommendation(settings=[Setting(knob="num_workers", value=1), STAYING], workers=1)
    written = adopt_measured(back, FOUND, told(tmp_path, SERVED, ("trial", TRIAL)))
    assert written is not None
    assert written.settings == [STAYING]


def test_a_change_that_the_job_did_not_live_to_judge_is_told_as_such(tmp_path: Path) -> None:
    change = {"loader": 1, "active": 4, "window": 8, "was": [1, 2], "why": "x", "is_trial": True}
    (loader,) = told(tmp_path, SERVED, ("change", change))
    assert loader.fixes[0].outcome == "cannot tell"
    assert isinstance(loader.fixes[0].trial.speedup, Missing)
    assert loader.workers_at_end is None


def test_lost_workers_limits_and_random_numbers_become_notes(tmp_path: Path) -> None:
    (loader,) = told(
        tmp_path,
        SERVED,
        ("lost", {"loader": 1, "how": "was killed by SIGKILL", "left": 3}),
        ("varies", {"loader": 1, "is_late": False}),
        ("held", {"loader": 1, "active": 6, "why": "x"}),
        ("blocked", {"loader": 1, "why": "no core is free"}),
    )
    text = " ".join(loader.notes)
    assert "killed by SIGKILL; the loader went on with 3" in text
    assert "more workers would have come with the next epoch" in text
    assert "left as it is: no core is free" in text


def test_a_loader_that_is_left_alone_says_why(tmp_path: Path) -> None:
    (loader,) = told(tmp_path, ("left", {"loader": "DataLoader of x.Rows", "why": "it streams"}))
    assert loader.notes == ["Left alone: it streams."]
    assert "nothing was changed" in lines([loader])


def test_a_torn_line_costs_itself_only(tmp_path: Path) -> None:
    assert told(tmp_path, SERVED)
    (file,) = (tmp_path / "fix").glob("*.jsonl")
    file.write_bytes(file.read_bytes() + json.dumps(TRIAL).encode()[:20])
    assert len(summarise_fixes(read_fixes(tmp_path))) == 1


def test_a_run_without_fix_says_nothing(tmp_path: Path) -> None:
    assert summarise_fixes(read_fixes(tmp_path)) == []
    assert describe_fixes([], []) == []


def test_a_folder_that_cannot_be_written_is_borne(tmp_path: Path) -> None:
    (tmp_path / "fix").write_text("a file")
    FixJournal(str(tmp_path / "fix")).write("served", number=1)


def test_random_numbers_that_the_user_gave_up_are_not_said_to_be_kept(tmp_path: Path) -> None:
    event, facts = SERVED
    allowed = (event, {**facts, "is_varying": True, "is_allowed": True})
    (loader,) = told(tmp_path, allowed, ("trial", TRIAL))
    (note,) = loader.notes
    assert "--allow random" in note
    assert "between epochs" not in note


def test_a_run_that_was_deleted_does_not_come_back(tmp_path: Path) -> None:
    FixJournal(str(tmp_path / "deleted" / "fix")).write("served", number=1)
    assert not (tmp_path / "deleted").exists()
