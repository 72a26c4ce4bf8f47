"""What people read is reviewed as a diff: `python -m tests.golden.freeze` writes it anew."""

import pytest

from tests.golden.freeze import REPORTS, draw, make_diagnoses
from tests.golden.watched import draw_watched, make_snapshots


@pytest.mark.parametrize("name", sorted(make_diagnoses()))
def test_the_report_is_the_one_that_was_reviewed(name: str) -> None:
    assert draw(make_diagnoses()[name]) == (REPORTS / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(make_snapshots()))
def test_the_screen_of_a_running_job_is_the_one_that_was_reviewed(name: str) -> None:
    drawn = draw_watched(*make_snapshots()[name])
    assert drawn == (REPORTS / f"{name}.txt").read_text(encoding="utf-8")
    # The last line is a command to be copied, as long as the user's path.
    assert max(map(len, drawn.splitlines()[:-1])) <= 80


def test_every_file_is_compared_with_something() -> None:
    assert {path.stem for path in REPORTS.iterdir()} == {*make_diagnoses(), *make_snapshots()}
