"""JAX and grain: what is recorded of them, and that they do not notice.

`make test-jax` runs it, in an environment of its own.
"""

from pathlib import Path

import pytest

from fuelline.schema.run.recording import PYTHON_SOURCE
from fuelline.schema.wire import Kind
from tests.integration.frameworks.recorded import JOBS, Recorded, needs, record, run_plainly

pytestmark = needs("jax", "grain", "optax")

JOB = JOBS / "jax_job.py"
STEPS = 40
WAYS = ("generator", "queue", "map", "workers", "loader", "ahead", "nans", "stop", "fork", "raise")


@pytest.mark.parametrize("way", WAYS)
def test_recording_changes_no_bit_and_counts_every_step(tmp_path: Path, way: str) -> None:
    job = record(tmp_path, JOB, way)
    assert job.faults() == 0
    assert job.answer == run_plainly(JOB, way)
    assert job.count(Kind.STEP) == (STEPS // 2 if way == "stop" else STEPS)


def source_of(job: Recorded) -> str:
    (loader, *_) = job.timeline.loaders
    return loader.framework


@pytest.mark.parametrize("way", ["map", "workers", "loader"])
def test_every_batch_of_grain_is_waited_for_by_the_trainer_alone(tmp_path: Path, way: str) -> None:
    job = record(tmp_path, JOB, way)
    waits = job.events(Kind.WAIT)
    assert source_of(job) == "grain"
    assert waits["pid"].n_unique() == 1
    assert waits.height in (STEPS, STEPS + 1)


def test_a_planted_wait_at_a_queue_is_measured(tmp_path: Path) -> None:
    job = record(tmp_path, JOB, "queue")
    assert source_of(job) == PYTHON_SOURCE
    median = float(job.events(Kind.WAIT)["dur_ns"].median() or 0)  # type: ignore[arg-type]
    assert 10e6 < median < 60e6


SHAPES = """
import json
import jax
import jax.numpy as jnp

@jax.jit
def step(weights, rows):
    return weights - 0.1 * jax.grad(lambda w: ((rows @ w) ** 2).mean())(weights)

weights = jnp.ones((64, 8))
for number in range(12):
    weights = step(weights, jnp.ones((number + 1, 64)))
weights.block_until_ready()
print(json.dumps({"sum": float(weights.sum())}))
"""


def test_compiling_anew_is_a_part_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "shapes.py"
    script.write_text(SHAPES)
    job = record(tmp_path, script)
    assert job.faults() == 0
    assert job.answer == run_plainly(script)
    assert job.count(Kind.STEP) == 12
    assert job.count_tiles(Kind.PAUSE, "compile") >= 10
