"""Runs a job script with and without the hooks, and reads the spools that it left.

The reader is deliberately another one than `ingest` has: what the hooks write is checked against
the layout in `schema.wire` alone.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuelline.fix.job_site import SITE_DIR as FIX_SITE_DIR
from fuelline.record.hooks import SITE_DIR
from fuelline.schema import wire
from fuelline.schema.diagnosis.fixes import FIX_VARIABLE

JOBS = Path(__file__).parent / "jobs"


@dataclass
class Outcome:
    """What can be seen of a job from outside."""

    exit_code: int
    output: str
    errors: str

    @property
    def answer(self) -> Any:
        """The JSON in the last line of the output."""
        assert self.exit_code == 0, self.errors
        return json.loads(self.output.splitlines()[-1])


@dataclass
class Left:
    """The records of one process's spool."""

    pid: int
    parent: int
    dropped: int
    faults: int
    stopped: int
    records: list[tuple[int, ...]] = field(default_factory=list)
    texts: dict[int, bytes] = field(default_factory=dict)

    def of(self, kind: wire.Kind) -> list[tuple[int, ...]]:
        """Records of a kind: start, dur, a, b, c, d, e, tid, flags, kind."""
        return [record for record in self.records if record[-1] == kind]

    @property
    def steps(self) -> int:
        return len(self.of(wire.Kind.STEP))

    def count(self) -> Counter[str]:
        return Counter(wire.Kind(record[-1]).name for record in self.records)

    def settings(self) -> list[dict[str, Any]]:
        return [json.loads(self.texts[record[3]]) for record in self.of(wire.Kind.SOURCE)]

    def blindspots(self) -> list[dict[str, str]]:
        return [json.loads(self.texts[record[2]]) for record in self.of(wire.Kind.BLINDSPOT)]


def environment(run_dir: Path | None, fix: str | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != wire.RUN_DIR_VARIABLE}
    kept["PYTHONHASHSEED"] = "0"
    kept.pop("PYTHONPATH", None)
    if run_dir is not None:
        kept |= {"PYTHONPATH": SITE_DIR, wire.RUN_DIR_VARIABLE: str(run_dir)}
    if fix is not None:
        kept |= {"PYTHONPATH": f"{SITE_DIR}{os.pathsep}{FIX_SITE_DIR}", FIX_VARIABLE: fix}
    return kept


def run(
    script: str,
    *arguments: str,
    run_dir: Path | None = None,
    before_exec: Callable[[], None] | None = None,
    fix: str | None = None,
) -> Outcome:
    done = subprocess.run(
        [sys.executable, str(JOBS / script), *arguments],
        env=environment(run_dir, fix),
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
        preexec_fn=before_exec,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def read_spools(run_dir: Path) -> list[Left]:
    files = sorted(run_dir.glob(f"spool/*{wire.SUFFIX}"))
    return [read_spool(file.read_bytes()) for file in files]


def read_spool(data: bytes) -> Left:
    magic, version, pid, parent, *_ = wire.HEADER.unpack_from(data)
    assert (magic, version) == (wire.MAGIC, wire.VERSION)
    _, dropped, faults, _, stopped, written = wire.NOTES.unpack_from(data, wire.NOTES_OFFSET)
    assert written == len(data)
    left = Left(pid, parent, dropped, faults, stopped)
    for at in range(wire.HEADER_BYTES, len(data), wire.RECORD_BYTES):
        record = wire.RECORD.unpack_from(data, at)
        if record[-1] == wire.Kind.TEXT:
            number, length, chunk, *_ = wire.TEXT_RECORD.unpack_from(data, at)
            left.texts[number] = (left.texts.get(number, b"") + chunk)[:length]
        elif record[-1]:
            left.records.append(record)
    return left


def trainer_of(spools: list[Left]) -> Left:
    """The one process that took batches or ran backward."""
    trainers = [left for left in spools if left.of(wire.Kind.WAIT) or left.of(wire.Kind.BACKWARD)]
    assert len(trainers) == 1
    return trainers[0]
