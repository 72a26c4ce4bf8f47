"""torchrun and its relatives start the ranks; each of them is recorded."""

from pathlib import Path

import pytest

from fuelline.schema.wire import Kind
from tests.integration.frameworks.recorded import JOBS, Recorded, needs, record

pytestmark = needs("torch")

LAUNCHERS = {"torchrun": ("torchrun",), "module": ("python", "-m", "torch.distributed.run")}


@pytest.mark.parametrize(("launcher", "accumulate"), [("torchrun", 3), ("module", 1)])
def test_both_ranks_of_a_plain_loop_are_recorded(
    tmp_path: Path, launcher: str, accumulate: int
) -> None:
    script = (JOBS / "ddp.py", "--accumulate", str(accumulate))
    job = record(tmp_path, *LAUNCHERS[launcher], "--nproc-per-node", "2", *script)
    assert job.steps_by_process() == [24 // accumulate] * 2 == [job.answer["steps"]] * 2
    check_parts(job, backwards=24)


def check_parts(job: Recorded, backwards: int) -> None:
    assert job.faults() == 0
    assert job.diagnosis["steps"]["count"] == job.answer["steps"] - 1
    assert job.count(Kind.BACKWARD) == job.batches(*job.trainer.train_sources) == backwards
    assert job.count_tiles(Kind.WAIT, "validation") == 10  # 4 batches and an end, twice
    assert len(job.trainer.train_sources) == 1
