"""From the raw files of a run to its diagnosis, and what the shape of a job hides."""

import json
from pathlib import Path

import pytest

from fuelline import pipeline
from fuelline.pipeline import recorded
from fuelline.schema.diagnosis.findings import Diagnosis, Remedy
from fuelline.schema.diagnosis.forecasts import WhatIf
from fuelline.schema.run.recording import SPOOL_DIR
from fuelline.schema.wire import Kind
from tests.unit.ingest.remains import CREATED_NS, header, record, text, training_records, write_run


def diagnosis_of(run: Path, records: list[bytes], **spools: list[bytes]) -> Diagnosis:
    """Of a run with one main process and further ones by pid."""
    write_run(run, records=records)
    for pid, rows in spools.items():
        content = header(pid=int(pid.strip("_"))) + b"".join(rows)
        (run / SPOOL_DIR / f"{pid}.spool").write_bytes(content)
    return pipeline.diagnose_run(run)


def hidden(diagnosis: Diagnosis) -> str:
    return " | ".join(f"{spot.what}: {spot.why}" for spot in diagnosis.blindspots)


def steps_without_a_loader(count: int = 8) -> list[bytes]:
    rows = []
    for step in range(count):
        at = CREATED_NS + 10 + step * 90
        rows += [
            record(Kind.BACKWARD, 0, -1, start_ns=at + 40, dur_ns=20),
            record(Kind.STEP, 1, -1, start_ns=at + 60, dur_ns=20),
        ]
    return rows


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_a_job_that_never_loaded_the_framework_is_told_so(run: Path) -> None:
    write_run(run)
    (run / SPOOL_DIR / "4711.spool").unlink()
    diagnosis = pipeline.diagnose_run(run)
    assert diagnosis.verdict.code is None
    assert "no process of the job loaded PyTorch" in diagnosis.verdict.reason


def test_a_job_that_never_trained_is_told_so(run: Path) -> None:
    diagnosis = diagnosis_of(run, [record(Kind.GC, 2, 10)])
    assert "no batch was taken" in diagnosis.verdict.reason
    assert diagnosis.window is None


def test_a_job_with_one_step_is_told_to_train_longer(run: Path) -> None:
    diagnosis = diagnosis_of(run, training_records(steps=1))
    assert "fewer than two steps" in diagnosis.verdict.reason


def test_further_ranks_are_a_blindspot(run: Path) -> None:
    diagnosis = diagnosis_of(run, training_records(9), _5000=training_records(8))
    assert diagnosis.steps.count == 8
    assert "1 further training processes" in hidden(diagnosis)


def test_steps_without_a_loader_forbid_a_verdict_of_health(run: Path) -> None:
    diagnosis = diagnosis_of(run, steps_without_a_loader())
    assert diagnosis.verdict.code is None
    assert "no source of batches was seen" in diagnosis.verdict.reason
    assert "where the training data comes from" in hidden(diagnosis)


def test_an_unwatched_loop_is_unexplained_and_said(run: Path) -> None:
    write_run(run, journal=[])
    diagnosis = pipeline.diagnose_run(run)
    assert "the observer left nothing behind" in hidden(diagnosis)
    assert diagnosis.verdict.code is None


def test_the_json_is_the_diagnosis(run: Path) -> None:
    diagnosis = diagnosis_of(run, training_records())
    answer = json.loads(pipeline.diagnose_as_json(run, price=2.0))
    assert answer["run"]["run_id"] == diagnosis.run.run_id
    assert answer["run"]["seconds"] == 60
    assert answer["price_usd_per_hour"] == 2.0


def test_a_folder_of_any_name_can_be_diagnosed(tmp_path: Path) -> None:
    run = tmp_path / "caf\udce9"
    write_run(run)
    assert json.loads(pipeline.diagnose_as_json(run))["run"]["path"].endswith(r"caf\udce9")


def test_a_setting_that_is_proposed_is_valued(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Remedy(
        setting="four workers", why="-", applicability="safe", question=WhatIf(workers=4)
    )
    monkeypatch.setattr(recorded, "propose_settings", lambda _: [setting])
    write_run(run, records=training_records(steps=8))
    (valued,) = recorded.diagnose_recording(run, None).settings
    assert valued.gain is not None


def test_a_failed_hook_in_a_recording_of_0_1_makes_the_time_between_events_unexplained(
    run: Path,
) -> None:
    spot = '{"what": "hook loader wait", "why": "AttributeError", "forbids": "waits"}'
    noted = [*text(90, spot), record(Kind.BLINDSPOT, 90)]
    write_run(run, records=[*noted, *training_records(steps=8)])
    for _ in ("from its spool", "from its tables"):
        diagnosis = pipeline.diagnose_run(run)
        assert "unexplained" in {each.part for each in diagnosis.budget}
        assert "step-hook" in {each.code for each in diagnosis.blindspots}
