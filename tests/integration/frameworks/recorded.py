"""Runs a framework's job under `fuelline run` and reads what was recorded and diagnosed.

What is asserted are counts and shares, never times: how many steps, which batches were waited for,
what a stretch was called.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fuelline.ingest import read_recording
from fuelline.schema.wire import Flag, Kind
from fuelline.timeline import Timeline
from fuelline.timeline.segments import StepSegments, cut_segments
from fuelline.timeline.trainer import Trainer, find_trainers

JOBS = Path(__file__).parent / "jobs"
BIN = Path(sys.executable).parent
LIMIT_S = 400


def needs(*frameworks: str) -> pytest.MarkDecorator:
    """Skips a module's tests, with the reason, if a framework is not installed."""
    missing = [name for name in frameworks if find_spec(name) is None]
    homes = {"tensorflow": "make test-tensorflow", "jax": "make test-jax"}
    how = next((homes[name] for name in missing if name in homes), "make frameworks")
    reason = f"{', '.join(missing)} not installed; `{how}` installs and tests it"
    return pytest.mark.skipif(bool(missing), reason=reason)


@dataclass(frozen=True)
class Recorded:
    """A run of a job."""

    run_dir: Path
    output: str

    @property
    def answer(self) -> Any:
        """The JSON that the job wrote last."""
        return last_json(self.output)

    @cached_property
    def diagnosis(self) -> Any:
        """`diagnose --json`."""
        done = _start(BIN / "fuelline", "diagnose", "--json", self.run_dir)
        return json.loads(done.stdout)

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of the budget by part."""
        return {part["part"]: part["seconds"] for part in self.diagnosis["budget"]}

    @property
    def blindspots(self) -> list[str]:
        return [blind["what"] for blind in self.diagnosis["blindspots"]]

    @cached_property
    def timeline(self) -> Timeline:
        return read_recording(self.run_dir)

    @cached_property
    def trainer(self) -> Trainer:
        return find_trainers(self.timeline)[0]

    @cached_property
    def segments(self) -> StepSegments:
        found = cut_segments(self.timeline, self.trainer)
        assert found is not None
        return found

    def events(self, kind: Kind) -> pl.DataFrame:
        """Of the trainer."""
        return self.timeline.table("events").filter(
            (pl.col("pid") == self.trainer.pid) & (pl.col("kind") == kind)
        )

    def count(self, kind: Kind) -> int:
        return self.events(kind).height

    def count_tiles(self, kind: Kind, part: str) -> int:
        """Events inside the window that were given a part."""
        return self.segments.pieces.filter(
            (pl.col("kind") == kind) & (pl.col("part") == part)
        ).height

    def batches(self, *loaders: int) -> int:
        """Batches that came from these loaders, ends of epochs left out."""
        ended = pl.col("flags").cast(pl.Int64) & int(Flag.END) != 0
        return self.events(Kind.WAIT).filter(pl.col("a").is_in(loaders) & ~ended).height

    def steps_by_process(self) -> list[int]:
        steps = self.timeline.table("events").filter(pl.col("kind") == Kind.STEP)
        return [int(count) for count in steps.group_by("pid").len()["len"].sort()]

    def faults(self) -> int:
        return sum(process.faults for process in self.timeline.processes)


def last_json(output: str) -> Any:
    return json.loads([line for line in output.splitlines() if line.startswith("{")][-1])


def record(folder: Path, *command: str | Path, options: tuple[str, ...] = ()) -> Recorded:
    """Record a command to its end; `folder` is its own."""
    run_dir = folder / "run"
    words = (BIN / "fuelline", "run", "--quiet", *options, "--run-dir", run_dir, *command)
    return Recorded(run_dir, _start(*words).stdout)


def run_plainly(*command: str | Path) -> Any:
    """The answer of the same job without us."""
    return last_json(_start(sys.executable, *command).stdout)


def _start(*command: str | Path) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        env={**kept, "PATH": f"{BIN}:{kept['PATH']}", "HF_HUB_OFFLINE": "1", "VIRTUAL_ENV": ""},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done
