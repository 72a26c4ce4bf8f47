"""A made-up framework with hooks of its own: a folder of that name, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FRAMEWORK = """
import time

class Pipeline:
    def __init__(self, batches):
        self.left = batches

    def pull(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        time.sleep(0.006)
        return [0.0] * 4

def learn(batch):
    time.sleep(0.004)
"""
ADAPTER = """
import json
import os
import sys
from time import monotonic_ns

from fuelline.record.hooks.guest import Framework, Guest
from fuelline.record.hooks.hook import Hook
from fuelline.record.hooks.patches import Patches
from fuelline.record.spool import Spool
from fuelline.schema.wire import Flag, Kind, Phase

import toy

TOY = Framework(
    package="toy",
    folder=os.path.dirname(toy.__file__) + os.sep,
    handlers=(),
    is_tracing=lambda: False,
)

class Pull(Hook):
    name, forbids = "toy wait", "waits"

    def begin(self, args, kwargs):
        if not self.guest.trainer:
            self.guest.appoint()
        self.guest.enter(Phase.WAIT)
        return args[0].left, monotonic_ns()

    def end(self, ticket, result, error):
        left, start_ns = ticket
        flags = Flag.TRAINING | (Flag.END if error else 0)
        self.guest.enter(Phase.OUTSIDE if error else Phase.COMPUTE)
        fields = 1, 0 if error else len(result), -1, -1, 100 - left
        self.guest.append(Kind.WAIT, start_ns, monotonic_ns() - start_ns, *fields, flags)

class Learn(Hook):
    name, forbids = "toy step", "steps"

    def begin(self, args, kwargs):
        return ()

    def end(self, ticket, result, error):
        self.guest.append(Kind.STEP, monotonic_ns(), 0, 1)

class Installation:
    def __init__(self, run_dir):
        self.guest, self.patches = Guest(Spool(f"{run_dir}/spool"), TOY), Patches()
        spool = self.guest.spool
        note = spool.text(json.dumps({"framework": "toy", "version": "1"}))
        self.guest.append(Kind.PROCESS, monotonic_ns(), 0, note)
        self.patches.replace(toy.Pipeline, "pull", Pull(self.guest).wrap(toy.Pipeline.pull))
        self.patches.replace(toy, "learn", Learn(self.guest).wrap(toy.learn))

    def uninstall(self):
        self.patches.undo()
        self.guest.spool.close()

def install(run_dir, watch, prepare=lambda _: None):
    installation = Installation(run_dir)
    prepare(installation.guest)
    return installation
"""
JOB = """
import json
import sys
import fuelline
from fuelline.record import hooks

hooks.__path__.append(sys.argv[1])  # as if the adapter's folder lay beside torch's
from fuelline.record import inside

site = inside._load_from_site
def load(name):
    module = site(name)
    if name == "fuelline_watch":
        module.HOOKS = sys.argv[1]
    return module
inside._load_from_site = load

with fuelline.record(sys.argv[2]) as run:
    import toy
    pipeline = toy.Pipeline(100)
    try:
        while True:
            toy.learn(pipeline.pull())
    except StopIteration:
        pass
assert "torch" not in sys.modules
answer = run.diagnose()
print(json.dumps({
    "kind": answer.steps.kind,
    "count": answer.steps.count,
    "input": sum(part.share for part in answer.budget if part.part == "input"),
}))
"""


def test_its_steps_and_waits_are_judged_without_torch(tmp_path: Path) -> None:
    adapters, job = tmp_path / "adapters", tmp_path / "job"
    (adapters / "toy").mkdir(parents=True)
    (adapters / "toy" / "__init__.py").touch()
    (adapters / "toy" / "install.py").write_text(ADAPTER)
    job.mkdir()
    (job / "toy.py").write_text(FRAMEWORK)
    (job / "train.py").write_text(JOB)
    command = [sys.executable, "train.py", str(adapters), str(tmp_path / "run")]
    done = subprocess.run(command, cwd=job, check=True, capture_output=True, text=True)
    answer = json.loads(done.stdout)
    assert (answer["kind"], answer["count"]) == ("train", 99)
    assert 0.4 < answer["input"] < 0.8  # 6 ms of waiting, then 4 of work
