"""TensorFlow and Keras: what is recorded of them, and that they do not notice.

`make test-tensorflow` runs it, in an environment of its own.
"""

import json
import os
from pathlib import Path

import polars as pl
import pytest
from bench.zoo.faults.preload import SlowReads

from fuelline.schema.wire import Kind
from tests.integration.frameworks.recorded import JOBS, Recorded, needs, record, run_plainly

pytestmark = needs("tensorflow")

JOB = JOBS / "keras_job.py"
BATCHES = 40
"""Of an epoch; there are two."""


def run(tmp_path: Path, way: str) -> Recorded:
    return record(tmp_path, JOB, way, tmp_path)


def check(job: Recorded, steps: int) -> None:
    assert job.faults() == 0
    assert job.count(Kind.STEP) == steps


@pytest.mark.parametrize(
    "way", ["fit", "several", "generator", "pydataset", "stop", "raise", "fork", "loop"]
)
def test_recording_changes_no_loss(tmp_path: Path, way: str) -> None:
    job = run(tmp_path, way)
    assert job.faults() == 0
    assert job.answer == run_plainly(JOB, way, tmp_path)


def test_a_planted_wait_is_measured(tmp_path: Path) -> None:
    """Each batch takes 20 ms; the first of an epoch is waited for longer, as are its neighbours."""
    job = run(tmp_path, "wait")
    check(job, 2 * BATCHES)
    waits = job.events(Kind.WAIT)
    assert waits.height >= 2 * BATCHES - 1
    steady = waits.filter(pl.col("e") > 8)["dur_ns"] / 1e6
    assert 15 < float(steady.median() or 0) < 40  # type: ignore[arg-type]


def test_steps_of_one_call_are_counted_one_by_one(tmp_path: Path) -> None:
    check(run(tmp_path, "several"), 2 * BATCHES)


def test_a_loop_in_python_is_judged_batch_by_batch(tmp_path: Path) -> None:
    job = run(tmp_path, "loop")
    assert job.diagnosis["steps"]["kind"] == "batch"
    (source,) = job.trainer.train_sources
    assert job.batches(source) == 2 * BATCHES


def test_validation_and_saving_are_pauses(tmp_path: Path) -> None:
    job = run(tmp_path, "validate")
    check(job, 2 * BATCHES)
    assert job.count_tiles(Kind.PAUSE, "validation") == 2
    saves = job.events(Kind.PAUSE).filter(pl.col("c") == 0)
    assert saves.height == 1


def test_the_stages_of_the_pipeline_are_recorded(tmp_path: Path) -> None:
    job = run(tmp_path, "fit")
    names = [node.name for node in job.timeline.loaders[-1].nodes]
    assert names[0] == "Root"
    assert "Shuffle" in names
    assert job.count(Kind.CREW) >= 2


def test_batches_of_a_pydataset_are_waited_for_by_when_python_makes_them(tmp_path: Path) -> None:
    job = run(tmp_path, "pydataset")
    check(job, 2 * BATCHES)
    assert job.blindspots == []
    (source,) = job.trainer.train_sources
    assert job.batches(source) == 2 * BATCHES


@pytest.mark.skipif(SlowReads(1).missing() is not None, reason="gcc makes reads slow")
def test_a_pool_that_is_changed_in_mid_epoch_changes_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads that wait: `--fix` gives the pipeline more threads while fit takes batches from it."""
    data = tmp_path / "data"
    data.mkdir()
    job = JOBS / "keras_files.py"
    plain = run_plainly(job, data, "250")
    with SlowReads(delay_ms=10).plant(data) as planted:
        for name, value in (planted.env or {}).items():
            monkeypatch.setitem(os.environ, name, value)
        fixed = record(tmp_path, job, data, "250", options=("--fix",))
    assert fixed.answer == plain
    (loader,) = (each for each in fixed.diagnosis["fixes"] if each["fixes"])
    assert loader["framework"] == "tf.data"
    assert loader["workers_at_end"] > loader["workers"]
    assert not [note for note in loader["notes"] if "Left alone" in note]


def test_nothing_is_imported_that_the_job_did_not_import(tmp_path: Path) -> None:
    script = tmp_path / "bare.py"
    script.write_text("import json, sys\nprint(json.dumps({'n': 'tensorflow' in sys.modules}))")
    job = record(tmp_path, script)
    assert job.answer == {"n": False}
    light = tmp_path / "light.py"
    light.write_text(
        "import json, sys, tensorflow\n"
        "heavy = [n for n in ('torch', 'polars', 'msgspec') if n in sys.modules]\n"
        "print(json.dumps(heavy) if heavy else '{}')"
    )
    assert json.loads(record(tmp_path / "second", light).output.splitlines()[-1]) == {}
