"""An imported trace over time: its columns and lanes are the ledger's time, however cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fuelline import pipeline
from fuelline.ingest import load_trace
from fuelline.signals.traced import picture_trace, survey_trace
from tests.unit.cli.test_compare_and_export import kineto

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("steps", "per"), [(6, "step"), (1, "slice")])
def test_columns_are_steps_or_slices_and_their_parts_the_window(
    tmp_path: Path, steps: int, per: str
) -> None:
    pipeline.import_files(
        [kineto(tmp_path / "t.json", steps=steps)], tmp_path / "run", partial=False, jobs=1
    )
    survey = survey_trace(load_trace(tmp_path / "run"))
    picture = picture_trace(survey)
    assert picture is not None
    picture.check()
    assert picture.per == per
    (account,) = survey.accounts
    finest = picture.levels[0]
    assert sum(finest.length_us) == pytest.approx(account.wall_ns / 1e3, abs=len(finest.steps))
    for part, values in finest.parts_us.items():
        spent_us = account.parts_ns[part] / 1e3
        assert sum(values) == pytest.approx(spent_us, abs=len(finest.steps)), part
    assert sum(finest.steps) == (6 if per == "step" else len(finest.steps))
    (lane,) = picture.lanes
    mean = sum(value or 0 for value in lane.series["computing"]) / len(lane.series["computing"])
    useful = account.parts_ns["useful compute"] / account.wall_ns
    assert mean == pytest.approx(useful, abs=0.02)
    assert lane.which == "0 of rank 0"
