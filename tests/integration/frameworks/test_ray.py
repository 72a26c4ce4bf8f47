"""Ray Train: the workers of a cluster that the job starts itself are recorded as ranks."""

import tempfile
from pathlib import Path

from fuelline.schema.wire import Kind
from tests.integration.frameworks.recorded import JOBS, needs, record

pytestmark = needs("ray")


def test_the_workers_of_a_cluster_of_the_jobs_own_are_recorded(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as sockets:
        job = record(tmp_path, JOBS / "rays.py", sockets, tmp_path / "out")
    assert job.faults() == 0
    assert job.steps_by_process() == [24, 24]
    assert job.diagnosis["steps"]["count"] == 23
    (train,) = job.trainer.train_sources
    assert job.batches(train) == job.count(Kind.BACKWARD) == 24
    # Four batches and an end, after each epoch; Ray's loader fetches one batch ahead.
    assert job.count_tiles(Kind.WAIT, "validation") == 2 * 5
    assert job.count_tiles(Kind.WAIT, "input") == 2 * 11 - 1
